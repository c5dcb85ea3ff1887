"""mode="max-autotune" without a GPU: what is tried, kept, and not tried again.  Times come from the tests."""

import json

import pytest
import torch

pytest.importorskip("triton")

from frameloom.backend import autotune
from frameloom.backend.autotune import tuned
from frameloom.codegen.schedule.partition import launches
from frameloom.codegen.triton.module import generate, variants
from frameloom.ir.dtype import DType
from frameloom.ir.node import unary
from frameloom.ir.ops import Op
from frameloom.ir.program import Buffer, Kernel, Kind
from frameloom.ir.substitute import space
from frameloom.ir.symbolic.shape_env import ShapeEnv
from frameloom.runtime.build.cache import DiskCache
from tests.codegen.kernels import out, read, write
from tests.codegen.test_triton import rows, softmax
from tests.codegen.triton_kernels import TINY


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "cache", 1 << 30)


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    monkeypatch.setattr(autotune, "try_build", lambda sources, arch: [object()] * len(sources))


def kernels(*sizes, origin="where it is"):
    made = []
    for k, (n, m) in enumerate(sizes):
        x, b, i, j = rows(n, m)
        value = softmax(b, i, j) if k % 2 == 0 else unary(Op.NEG, read(b, i, j))
        kernel = Kernel(f"kernel{k}", (write(out("o", (n, m)), (i, j), value),), (origin,))
        made += launches(kernel, TINY)
    return made


class Times:
    """The `best`-th source is fastest, by far."""

    def __init__(self, best):
        self.best, self.asked = best, []

    def __call__(self, pairs, device):
        sources = [source for source, _ in pairs]
        self.asked.append(sources)
        return [1e-6 if i == self.best else 1e-5 for i in range(len(sources))]


def how(source):
    return source.text, source.grid, source.warps, source.stages


def test_the_fastest_is_chosen_once(cache):
    given = variants(kernels((64, 4096), (64, 256)), TINY)
    times = Times(3)
    first = tuned(given, "cuda:0", times, cache)
    assert [how(s) for s in first] == [how(asked[3]) for asked in times.asked]
    assert len(times.asked) == 2
    again = tuned(given, "cuda:0", times, cache)
    assert [how(s) for s in again] == [how(s) for s in first]
    moved = variants(kernels((64, 4096), (64, 256), origin="elsewhere"), TINY)
    assert [s.warps for s in tuned(moved, "cuda:0", times, cache)] == [s.warps for s in first]
    assert len(times.asked) == 2, "what is kept is not tried again"


def test_another_kernel_is_tried(cache):
    times = Times(1)
    tuned(variants(kernels((64, 4096)), TINY), "cuda:0", times, cache)
    tuned(variants(kernels((64, 2048)), TINY), "cuda:0", times, cache)
    assert len(times.asked) == 2


def test_the_default_stays_where_it_is_as_fast(cache):
    given = variants(kernels((64, 4096)), TINY)
    almost = lambda pairs, device: [1.0, *([0.99] * (len(pairs) - 1))]
    (source,) = tuned(given, "cuda:0", almost, cache)
    assert how(source) == how(given[0].source())
    (source,) = tuned(given, "cuda:0", None, cache)  # known: nothing is measured
    assert how(source) == how(given[0].source())


def test_what_does_not_compile_or_run_is_dropped(cache, monkeypatch):
    given = variants(kernels((64, 4096)), TINY)
    refused = lambda sources, arch: [None if i == 1 else object() for i in range(len(sources))]
    monkeypatch.setattr(autotune, "try_build", refused)
    times = Times(1)
    (source,) = tuned(given, "cuda:0", times, cache)
    assert how(source) == how(given[0].source(given[0].tunings[1]))
    nothing = lambda pairs, device: [float("inf")] * len(pairs)
    (other,) = tuned(variants(kernels((64, 2048)), TINY), "cuda:0", nothing, cache)
    assert how(other) == how(generate(kernels((64, 2048)), TINY)[0])


def test_what_cannot_be_tried_now_is_tried_another_time(cache):
    given = variants(kernels((64, 4096)), TINY)

    def full(pairs, device):
        raise torch.OutOfMemoryError("no memory")

    assert how(tuned(given, "cuda:0", full, cache)[0]) == how(given[0].source())
    times = Times(2)
    assert how(tuned(given, "cuda:0", times, cache)[0]) == how(times.asked[0][2])


def test_the_time_is_bounded(cache):
    given = variants(kernels((64, 4096), (64, 256)), TINY)
    times = Times(1)
    assert len(tuned(given, "cuda:0", times, cache, seconds=-1)) == 2
    assert times.asked == []


def test_what_is_kept_can_be_read(cache):
    tuned(variants(kernels((64, 4096)), TINY), "cuda:0", Times(1), cache)
    (file,) = cache.directory.glob("??/*.tuning")
    assert set(json.loads(file.read_bytes()[:-40])) == {
        "blocks",
        "inner",
        "warps",
        "stages",
        "persistent",
    }


def test_kernels_of_sizes_that_vary_are_launched_as_they_are(cache):
    n = ShapeEnv().symbol(64, None)
    i, j = space((n, 4096))
    x = Buffer("x", DType.F32, (n, 4096), (4096, 1), Kind.INPUT)
    kernel = Kernel("k", (write(out("o", (n, 4096)), (i, j), softmax(x, i, j)),))
    given = variants(launches(kernel, TINY), TINY)
    times = Times(1)
    assert how(tuned(given, "cuda:0", times, cache)[0]) == how(given[0].source())
    assert times.asked == []
