"""The disk cache: whole files, owner only, bounded, never in the way."""

import os
import stat
import threading
from pathlib import Path

import pytest

from frameloom.config import Config
from frameloom.runtime.build.cache import DiskCache, digest
from tests import fresh


def test_round_trip(tmp_path):
    cache = DiskCache(tmp_path / "cache", 1 << 20)
    key = digest("source", "flags")
    assert cache.path(key, ".so") is None
    path = cache.put(key, ".so", b"content")
    assert path.read_bytes().startswith(b"content")
    again = DiskCache(tmp_path / "cache", 1 << 20)
    assert again.path(key, ".so") == path and again.get(key, ".so") == b"content"
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


def test_digest_counts_boundaries():
    assert digest("ab", "c") != digest("a", "bc")


@pytest.mark.parametrize("damage", [lambda d: d[:-5], lambda d: b"x" + d[1:], lambda d: b""])
def test_damaged_entry_is_made_again(tmp_path, damage):
    key = digest("k")
    path = DiskCache(tmp_path / "c", 1 << 20).put(key, ".so", b"0123456789" * 100)
    path.write_bytes(damage(path.read_bytes()))
    cache = DiskCache(tmp_path / "c", 1 << 20)
    assert cache.path(key, ".so") is None and not path.exists()
    assert cache.file(key, ".so", lambda: b"new").read_bytes().startswith(b"new")


def test_least_recently_used_goes(tmp_path):
    cache = DiskCache(tmp_path / "c", 4000)
    keys = [digest(str(i)) for i in range(6)]
    for age, key in enumerate(keys):
        path = cache.put(key, ".so", bytes(900))
        os.utime(path, (age, age))
    cache.trim()
    assert [cache.path(k, ".so") is not None for k in keys] == [
        False,
        False,
        True,
        True,
        True,
        True,
    ]


def test_others_may_not_write(tmp_path, caplog):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    cache = DiskCache(folder, 1 << 20)
    assert not cache.persistent and "cannot use the cache directory" in caplog.text
    assert cache.put(digest("k"), ".so", b"x").exists()
    assert list(folder.iterdir()) == []


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "c").write_text("not a folder")
    cache = DiskCache(tmp_path / "c", 1 << 20)
    assert not cache.persistent and cache.put(digest("k"), ".so", b"x").exists()


def test_write_that_fails_falls_back(tmp_path, caplog, monkeypatch):
    cache = DiskCache(tmp_path / "c", 1 << 20)

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError):
        cache.put(digest("k"), ".so", b"x")
    monkeypatch.undo()
    assert cache.put(digest("k"), ".so", b"x").exists() and "cannot use" in caplog.text
    assert not list((tmp_path / "c").glob("*/*"))


def test_many_writers(tmp_path):
    cache = DiskCache(tmp_path / "c", 1 << 20)
    key = digest("shared")
    threads = [
        threading.Thread(target=cache.put, args=(key, ".so", bytes([7]) * 50_000)) for _ in range(8)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert DiskCache(tmp_path / "c", 1 << 20).get(key, ".so") == bytes([7]) * 50_000


def test_a_forked_child_leaves_the_temporary_directory_alone():
    program = """
import os, sys
from frameloom.runtime.build.cache import DiskCache
cache = DiskCache(None, 1 << 20)
path = cache.put("ab" * 20, ".bin", b"content")
if (child := os.fork()) == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(path.exists())
"""
    done = fresh.run(program)
    assert done.stdout == "True\n", done.stderr


def test_without_a_home_directory(monkeypatch):
    def nobody(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("FRAMELOOM_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", nobody)
    assert str(os.getuid()) in Config().cache_dir.name
