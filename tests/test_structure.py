"""What keeps the code easy to see: import arrows, layers, file lengths, few settings, no borrowed compiler."""

import ast
import dataclasses
import functools
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

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


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


@functools.cache
def imported_modules(path):
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def test_imports_follow_the_arrows():
    wrong = []
    for path in PYTHON:
        folder = path.relative_to(ROOT).parts[0]
        for module in imported_modules(path):
            parts = module.split(".")
            if parts[0] != "frameloom" or len(parts) < 2 or parts[1] in FLOOR:
                continue
            target = parts[1] if parts[1] in SUBPACKAGES else "jit"
            if target not in MAY_IMPORT[folder]:
                wrong.append(f"{name(path)} imports {module}")
    assert not wrong


# The packages of `capture`, lowest first: each imports from those below it.
LAYERS = (
    "bytecode", "guards", "tensors", "shapes", "values", "symbolic", "recording", "autograd", "graph_passes", "speculation",
    "interpreter", "library", "resume", "driver",
)  # fmt: skip


def for_types_alone(tree):
    """The nodes under `if TYPE_CHECKING`."""
    blocks = (n for n in ast.walk(tree) if isinstance(n, ast.If))
    blocks = (n for n in blocks if "TYPE_CHECKING" in ast.unparse(n.test))
    return {inside for block in blocks for inside in ast.walk(block)}


def upward_imports():
    found = []
    for path in (ROOT / "capture").rglob("*.py"):
        package = path.relative_to(ROOT / "capture").parts[0]
        if package not in LAYERS:
            continue
        unread = for_types_alone(parsed(path))
        for node in ast.walk(parsed(path)):
            if node in unread or not isinstance(node, ast.ImportFrom):
                continue
            parts = (node.module or "").split(".")
            if parts[:2] != ["frameloom", "capture"]:
                continue
            for target in parts[2:3] or [alias.name for alias in node.names]:
                if target in LAYERS and LAYERS.index(target) > LAYERS.index(package):
                    found.append(f"{name(path)} imports {node.module}")
    return found


def test_imports_between_layers_of_capture_point_downward():
    packages = {p.name for p in (ROOT / "capture").iterdir() if (p / "__init__.py").exists()}
    assert packages == set(LAYERS)
    assert not upward_imports()


def test_imports_inside_functions_are_few_and_have_a_reason():
    """The reason is a comment; the worker of Triton imports only Triton, which no other process has to."""
    inside = []
    for path in PYTHON:
        lines = path.read_text().splitlines()
        for function in ast.walk(parsed(path)):
            if not isinstance(function, ast.FunctionDef):
                continue
            places = [
                n.lineno for n in ast.walk(function) if isinstance(n, ast.Import | ast.ImportFrom)
            ]
            if places:
                inside.append(f"{name(path)} {function.name}")
                assert path.stem == "triton_worker" or "#" in "".join(
                    lines[places[0] - 2 : places[0]]
                ), inside[-1]
    assert len(inside) <= 15, inside


def test_the_floor_imports_nothing_above_it():
    for stem in FLOOR:
        ours = {
            m for m in imported_modules(ROOT / "jit" / f"{stem}.py") if m.startswith("frameloom")
        }
        assert ours <= {"frameloom.config", "frameloom.config.config"}, stem


def names_another_compiler(path):
    text = path.read_text()
    if path.suffix != ".py":
        return any(word in text for word in FORBIDDEN)
    if any(m.startswith(FORBIDDEN[:4]) for m in imported_modules(path)):
        return True
    if not any(word in text for word in FORBIDDEN):
        return False
    tree = parsed(path)
    code = ast.unparse(tree)
    docstrings = [ast.get_docstring(n) or "" for n in ast.walk(tree)
                  if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]  # fmt: skip
    hits = sum(code.count(word) for word in FORBIDDEN)
    return hits > sum(d.count(word) for d in docstrings for word in FORBIDDEN)


def test_no_other_compiler_is_used():
    assert not [name(path) for path in PYTHON + NATIVE if names_another_compiler(path)]


LINES = 500


def test_files_stay_short():
    lines = {name(path): path.read_text().count("\n") for path in PYTHON + NATIVE + TESTS}
    assert not {path: n for path, n in lines.items() if n > LINES}


PACKAGES = sorted({p.parent for p in PYTHON})


def test_folders_stay_small():
    suffixes = (".py", ".c", ".h", ".cpp")
    files = {name(p): sum(f.suffix in suffixes for f in p.iterdir()) for p in PACKAGES}
    files |= Counter(name(p.parent) for p in TESTS)
    assert not {package: n for package, n in files.items() if n > 25}


def test_every_package_is_named_in_the_architecture():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    # Of families of values, functions and opcodes, the row of their package tells.
    named = {word for word in re.findall(r"`([a-z_/]+)`", text)}
    unnamed = [name(p) for p in PACKAGES if name(p) not in named and f"{p.name}/" not in named]
    assert not unnamed


# Words that meant something of our own; docs/glossary.md has the field's words.
OWN_WORDS = frozenset(
    "again alike anew awaited carried detour detours facts foresees foreseen found late likely looptree "
    "newcomer piece pieces pretends regulars settle settled settles soft softly spent told varying".split()
)
# Names of PyTorch and Python.
THEIRS = {"ModuleNotFoundError", "carried_inputs", "found_inf", "soft_margin_loss"}


def names_in(path):
    text = path.read_text()
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return {token.string for token in tokens if token.type == tokenize.NAME}
    code = re.sub(r"//[^\n]*|/\*.*?\*/|\"(\\.|[^\"\\])*\"", "", text, flags=re.DOTALL)
    return set(re.findall(r"[A-Za-z_]\w*", code))


def test_names_are_the_words_of_the_field():
    wrong = []
    for path in PYTHON + NATIVE:
        for word in names_in(path) - THEIRS:
            parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", word)
            if OWN_WORDS.intersection(map(str.lower, parts)):
                wrong.append(f"{name(path)}: {word}")
    assert not wrong


def size_of(cls):
    """How many fields and methods a class has itself; Python's special methods do not count."""
    functions = [n for n in cls.body if isinstance(n, ast.FunctionDef)]
    fields = {
        n.target.id
        for n in cls.body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }
    fields |= {
        n.attr
        for n in ast.walk(cls)
        if isinstance(n, ast.Attribute)
        and isinstance(n.ctx, ast.Store)
        and isinstance(n.value, ast.Name)
        and n.value.id == "self"
    }
    return len(fields), sum(not f.name.startswith("__") for f in functions)


def test_classes_stay_small():
    large = {}
    for path in PYTHON:
        for cls in (n for n in ast.walk(parsed(path)) if isinstance(n, ast.ClassDef)):
            fields, methods = size_of(cls)
            if fields > 20 or methods > 30:
                large[f"{name(path)}:{cls.name}"] = fields, methods
    assert not large


def test_settings_stay_few():
    assert len(dataclasses.fields(Config)) <= 15


def test_files_open_with_their_job():
    assert not [name(p) for p in PYTHON if not ast.get_docstring(parsed(p))]


def test_no_file_is_called_utils():
    assert not [name(p) for p in PYTHON if p.stem in ("utils", "helpers", "misc", "common")]
