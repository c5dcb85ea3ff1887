"""`python -m tests.same BASE [--only TEXT] [--models N]`: what is compiled otherwise than at that commit; exit status 1 if anything is."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.tree import ROOT, Tree, build, importing, link_package

SHOWN = 60  # lines of what differs


def copy_of(commit: str, folder: Path) -> Path:
    """The tree of a commit, built."""
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True)
    if packed.returncode:
        sys.exit(f"{commit}: {packed.stderr.decode().strip()}")
    subprocess.run(["tar", "-x"], cwd=folder, input=packed.stdout, check=True)
    if not (folder / "tests/same").is_dir():
        sys.exit(f"{commit} is older than this gate; name a commit that has tests/same")
    print(f"building {commit}", file=sys.stderr)
    build(folder)
    link_package(folder)
    return folder


def record(tree: Path, folder: Path, rest: list[str]) -> None:
    """What is compiled by the tree, a file for each program."""
    command = [sys.executable, "-m", "tests.same.recorded", str(folder), *rest]
    # Texts of sets, which guards tell, hang on it.
    alike = {**importing(tree), "PYTHONHASHSEED": "0"}
    subprocess.run(command, cwd=tree, env=alike, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="a commit")
    parser.add_argument("--keep", type=Path, help="leave what was recorded in this folder")
    options, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="frameloom-same-") as made:
        place = options.keep or Path(made)
        place.mkdir(parents=True, exist_ok=True)
        base = copy_of(options.base, Path(made) / "tree")
        here = Tree(Path(made) / "here")
        here.fill()
        record(base, place / "before", rest)
        record(here.folder, place / "after", rest)
        differ = ["git", "diff", "--no-index", "--no-color", "before", "after"]
        found = subprocess.run(differ, cwd=place, capture_output=True, text=True).stdout
    lines = found.splitlines()
    print("\n".join(lines[:SHOWN]))
    files = sum(line.startswith("diff ") for line in lines)
    print(f"{files} programs are compiled otherwise than at {options.base}")
    return files > 0


if __name__ == "__main__":
    sys.exit(main())
