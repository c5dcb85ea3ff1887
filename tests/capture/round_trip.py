"""Every code object of the standard library and of PyTorch is decoded and assembled again, and must come out equal.

    python tests/capture/round_trip.py [FOLDER]... [--every N]

Runs on any CPython that the decoder knows, with or without PyTorch: of Frameloom only `capture/bytecode/instruction.py` and `capture/bytecode/opcodes.py` are imported.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]


def load_instr() -> Any:
    """`frameloom.capture.bytecode.instruction`, without what else importing frameloom imports."""
    if importlib.util.find_spec("torch") is None:
        for name, folder in (("frameloom", "jit"), ("frameloom.capture", "capture")):
            package = sys.modules.setdefault(name, ModuleType(name))
            package.__path__ = [str(ROOT / folder)]
    return importlib.import_module("frameloom.capture.bytecode.instruction")


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from codes(const)


def copied(instr: Any, code: CodeType) -> list[Any]:
    """The decoded instructions, copied: jumps and handlers lead to the copies."""
    copies = [i.copy() for i in instr.decode(code)]
    handlers: dict[int, Any] = {}
    for copy in copies:
        if copy.target is not None:
            copy.target = copies[copy.target.index]
        if (h := copy.handler) is not None:
            made = instr.Handler(copies[h.target.index], h.depth, h.lasti)
            copy.handler = handlers.setdefault(id(h), made)
    return copies


def assembled(instr: Any, instructions: list[Any], code: CodeType) -> CodeType:
    """A code object of these instructions; the rest as in `code`."""
    return instr.assemble(
        instructions,
        code,
        varnames=code.co_varnames,
        cellvars=code.co_cellvars,
        freevars=code.co_freevars,
        stacksize=code.co_stacksize,
        pools=True,
    )


def round_trip(instr: Any, code: CodeType) -> CodeType:
    """Decoded, copied, assembled."""
    return assembled(instr, copied(instr, code), code)


PARTS = (
    "co_code", "co_consts", "co_names", "co_exceptiontable", "co_linetable", "co_stacksize", "co_flags", "co_varnames", "co_cellvars",
    "co_freevars", "co_argcount", "co_kwonlyargcount", "co_posonlyargcount", "co_firstlineno", "co_filename", "co_name", "co_qualname",
)  # fmt: skip


def differing(a: CodeType, b: CodeType) -> list[str]:
    """The parts in which two code objects differ; constants are compared by identity."""
    found = [p for p in PARTS if p != "co_consts" and getattr(a, p) != getattr(b, p)]
    if list(map(id, a.co_consts)) != list(map(id, b.co_consts)):
        found.append("co_consts")
    if not found and a != b:
        found.append("==")
    return found


def sources(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]


def default_folders() -> list[Path]:
    folders = [Path(sysconfig.get_path("stdlib"))]
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent)
    return folders


def check(folders: list[Path], every: int = 1) -> tuple[int, int, list[str]]:
    """Files, code objects, and what differs, of every `every`-th file."""
    instr, files, count, wrong = load_instr(), 0, 0, []
    for number, path in enumerate(sources(folders)):
        if number % every or ("site-packages" in path.parts and "torch" not in path.parts):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                whole = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):  # the standard library has broken files, for its tests
            continue
        files += 1
        for code in codes(whole):
            count += 1
            if parts := differing(code, round_trip(instr, code)):
                wrong.append(f"{path}:{code.co_firstlineno} {code.co_qualname}: {', '.join(parts)}")
    return files, count, wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    files, count, wrong = check(options.folders or default_folders(), options.every)
    print("\n".join(wrong[:20]))
    print(
        f"CPython {sys.version.split()[0]}: {count} code objects of {files} files, {len(wrong)} differ"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
