"""What keeps the code easy to see: import arrows, file lengths, few settings, no borrowed compiler."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from frameloom.config import Config

ROOT = Path(__file__).parent.parent
FLOOR = {"config", "errors", "debug"}
MAY_IMPORT = {
    "ir": {"ir"},
    "runtime": {"runtime"},
    "codegen": {"codegen", "ir"},
    "capture": {"capture", "ir"},
    "jit": {"jit", "capture", "ir", "codegen", "runtime"},
}
SUBPACKAGES = {"capture", "ir", "codegen", "runtime"}
PYTHON = sorted(p for folder in MAY_IMPORT for p in (ROOT / folder).rglob("*.py"))
NATIVE = sorted(
    p
    for folder in MAY_IMPORT
    for ext in ("*.c", "*.h", "*.cpp")
    for p in (ROOT / folder).rglob(ext)
)
TESTS = sorted(p for folder in ("tests", "examples") for p in (ROOT / folder).rglob("*.py"))
FORBIDDEN = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch",
    "torch._C._dynamo",
    "torch.compile(",
)


def name(path):
    return str(path.relative_to(ROOT))


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_imports_follow_the_arrows(path):
    folder = path.relative_to(ROOT).parts[0]
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] != "frameloom" or len(parts) < 2 or parts[1] in FLOOR:
            continue
        target = parts[1] if parts[1] in SUBPACKAGES else "jit"
        assert target in MAY_IMPORT[folder], f"{name(path)} imports {module}"


def test_the_floor_imports_nothing_above_it():
    for stem in FLOOR:
        ours = {
            m for m in imported_modules(ROOT / "jit" / f"{stem}.py") if m.startswith("frameloom")
        }
        assert ours <= {"frameloom.config", "frameloom.config.config"}, stem


@pytest.mark.parametrize("path", PYTHON + NATIVE, ids=name)
def test_no_other_compiler_is_used(path):
    text = path.read_text()
    if path.suffix == ".py":
        assert not any(m.startswith(FORBIDDEN[:4]) for m in imported_modules(path))
        tree = ast.parse(text)
        code = ast.unparse(tree)
        docstrings = [ast.get_docstring(n) or "" for n in ast.walk(tree)
                      if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]  # fmt: skip
        hits = sum(code.count(word) for word in FORBIDDEN)
        allowed = sum(d.count(word) for d in docstrings for word in FORBIDDEN)
        assert hits <= allowed, name(path)
    else:
        assert not any(word in text for word in FORBIDDEN)


@pytest.mark.parametrize("path", PYTHON + NATIVE + TESTS, ids=name)
def test_files_stay_short(path):
    lines = path.read_text().count("\n")
    assert lines < 800, f"{name(path)} has {lines} lines; split it by job"


PACKAGES = sorted({p.parent for p in PYTHON})


@pytest.mark.parametrize("package", PACKAGES, ids=name)
def test_folders_stay_small(package):
    files = [p for p in package.iterdir() if p.suffix in (".py", ".c", ".h", ".cpp")]
    assert len(files) <= 25, f"{name(package)} has {len(files)} files; split it by subject"


def test_every_package_is_named_in_the_architecture():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    # Of families of values, functions and opcodes, the row of their package tells.
    named = {word for word in re.findall(r"`([a-z_/]+)`", text)}
    unnamed = [name(p) for p in PACKAGES if name(p) not in named and f"{p.name}/" not in named]
    assert not unnamed


def test_settings_stay_few():
    assert len(dataclasses.fields(Config)) <= 15


@pytest.mark.parametrize("path", [p for p in PYTHON if p.name != "__init__.py"], ids=name)
def test_files_open_with_their_job(path):
    assert ast.get_docstring(ast.parse(path.read_text())), f"{name(path)} has no docstring"


def test_no_file_is_called_utils():
    assert not [name(p) for p in PYTHON if p.stem in ("utils", "helpers", "misc", "common")]
