"""Constants, locals, cells, globals, attributes, imports."""

from __future__ import annotations

import builtins
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from frameloom.capture.bytecode.opcodes import PY312, PY313
from frameloom.capture.interpreter.last_references import check_end
from frameloom.capture.interpreter.opcodes.registry import handles
from frameloom.capture.values.base import NULL, Raised, Value
from frameloom.capture.values.const import ConstValue
from frameloom.capture.values.function import CellValue
from frameloom.capture.values.static import ClassValue, SuperValue
from frameloom.errors import Break

if TYPE_CHECKING:
    from frameloom.capture.bytecode.instruction import Instr
    from frameloom.capture.interpreter.frame import Frame


@handles("NOP", "RESUME", "PRECALL", "EXTENDED_ARG", "CACHE", atomic=True)
def nothing(frame: Frame, ins: Instr) -> None:
    pass


@handles("POP_TOP", atomic=True)
def pop_top(frame: Frame, ins: Instr) -> None:
    if frame.t.options.resumed:
        check_end(frame.t, frame.stack[-1])
    frame.stack.pop()


@handles("COPY", atomic=True)
def copy(frame: Frame, ins: Instr) -> None:
    frame.stack.append(frame.stack[-ins.arg])


@handles("SWAP", atomic=True)
def swap(frame: Frame, ins: Instr) -> None:
    stack = frame.stack
    stack[-1], stack[-ins.arg] = stack[-ins.arg], stack[-1]


@handles("PUSH_NULL", atomic=True)
def push_null(frame: Frame, ins: Instr) -> None:
    frame.stack.append(NULL)


@handles("LOAD_CONST", atomic=True)
def load_const(frame: Frame, ins: Instr) -> None:
    frame.stack.append(frame.t.from_python(ins.arg))


# --- locals and cells


@handles("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CLOSURE", atomic=True)
def load_fast(frame: Frame, ins: Instr) -> None:
    load_local(frame, ins.arg)


def load_local(frame: Frame, name: str) -> None:
    value = frame.slots.get(name)
    if value is None:
        raise Break("unbound", name)
    frame.stack.append(value)


@handles("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(frame: Frame, ins: Instr) -> None:
    frame.push(frame.slots.pop(ins.arg, NULL))


@handles("STORE_FAST", atomic=True)
def store_fast(frame: Frame, ins: Instr) -> None:
    store_local(frame, ins.arg)


def store_local(frame: Frame, name: str) -> None:
    if frame.t.options.resumed and name in frame.slots:
        check_end(frame.t, frame.slots[name])
    value = frame.stack.pop()
    if value is NULL:
        frame.slots.pop(name, None)
    else:
        frame.slots[name] = value


@handles("DELETE_FAST")
def delete_fast(frame: Frame, ins: Instr) -> None:
    if ins.arg not in frame.slots:
        raise Break("unbound", ins.arg)
    if frame.t.options.resumed:
        check_end(frame.t, frame.slots[ins.arg])
    del frame.slots[ins.arg]


@handles("MAKE_CELL")
def make_cell(frame: Frame, ins: Instr) -> None:
    in_header = frame.root and frame.instrs[ins.index + 1].op in (
        "MAKE_CELL",
        "RESUME",
        "COPY_FREE_VARS",
        "RETURN_GENERATOR",
    )
    frame.slots[ins.arg] = CellValue(frame.slots.get(ins.arg), slot=ins.arg if in_header else None)


@handles("COPY_FREE_VARS")
def copy_free_vars(frame: Frame, ins: Instr) -> None:
    for name, cell in zip(frame.code.co_freevars, frame.closure, strict=True):
        frame.slots[name] = cell


@handles("LOAD_DEREF")
def load_deref(frame: Frame, ins: Instr) -> None:
    content = frame.lookup(ins.arg).content
    if content is None and ins.arg in frame.code.co_freevars:
        text = f"cannot access free variable '{ins.arg}' where it is not associated with a value in enclosing scope"
        frame.t.raise_(NameError, text)
    if content is None:
        raise Break("unbound", ins.arg)
    frame.push(content)


@handles("STORE_DEREF")
def store_deref(frame: Frame, ins: Instr) -> None:
    frame.lookup(ins.arg).write(frame.t, frame.pop_raw())


@handles("DELETE_DEREF")
def delete_deref(frame: Frame, ins: Instr) -> None:
    if frame.lookup(ins.arg).content is None:
        raise Break("unbound", ins.arg)
    frame.lookup(ins.arg).write(frame.t, None)


# --- globals


@handles("LOAD_GLOBAL")
def load_global(frame: Frame, ins: Instr) -> None:
    push_read(frame, global_value(frame, ins.arg), ins.flags & 1)


def global_value(frame: Frame, name: str) -> Value:
    t = frame.t
    value = frame.globals.get(t, ConstValue(name))
    if value is not None:
        return value
    scope = frame.globals.real.get("__builtins__", builtins)
    table = scope if isinstance(scope, dict) else scope.__dict__
    if name not in table:
        raise Break("unbound", name)
    return t.look(t.wrap(table[name], t.roots.object(table).child("key", name)))


@handles("STORE_GLOBAL")
def store_global(frame: Frame, ins: Instr) -> None:
    frame.globals.setitem(frame.t, ConstValue(ins.arg), frame.pop_raw())


@handles("DELETE_GLOBAL")
def delete_global(frame: Frame, ins: Instr) -> None:
    frame.globals.delitem(frame.t, ConstValue(ins.arg))


# --- attributes


@handles("LOAD_ATTR")
def load_attr(frame: Frame, ins: Instr) -> None:
    push_read(frame, frame.pop().getattr(frame.t, ins.arg), PY312 and ins.flags & 1)


@handles("LOAD_METHOD")
def load_method(frame: Frame, ins: Instr) -> None:
    push_read(frame, frame.pop().getattr(frame.t, ins.arg), True)


def push_read(frame: Frame, value: Value, is_called: int) -> None:
    """Pushes what was read; for a call with the NULL that it expects beside the callable. The method form of an
    attribute is always a bound method; calling it does the same."""
    if is_called:
        frame.stack.extend((value, NULL) if PY313 else (NULL, value))
    else:
        frame.stack.append(value)


@handles("LOAD_SUPER_ATTR")
def load_super_attr(frame: Frame, ins: Instr) -> None:
    owner, cls, function = frame.pop(), frame.pop(), frame.pop()
    if function.real is not super or not isinstance(cls, ClassValue):
        raise Break("attribute", f"super().{ins.arg}")
    push_read(frame, SuperValue(cls.real, owner).getattr(frame.t, ins.arg), ins.flags & 1)


@handles("STORE_ATTR")
def store_attr(frame: Frame, ins: Instr) -> None:
    owner = frame.pop()
    owner.setattr(frame.t, ins.arg, frame.pop_raw())


@handles("DELETE_ATTR")
def delete_attr(frame: Frame, ins: Instr) -> None:
    frame.pop().delattr(frame.t, ins.arg)


# --- imports


@handles("IMPORT_NAME")
def import_name(frame: Frame, ins: Instr) -> None:
    """Pushes a module that is already imported. Any other module breaks the graph, since an import would run
    its code."""
    names, level = frame.pop().constant(), frame.pop().constant()
    name = ins.arg
    if level:
        package = frame.globals.real.get("__package__") or ""
        base = package.rsplit(".", level - 1)[0] if level > 1 else package
        name = f"{base}.{name}" if name else base
    if name not in sys.modules:
        raise Break("import", f"import {name}")
    if missing := [sub for sub in names or () if _is_to_be_imported(sys.modules[name], sub)]:
        raise Break("import", f"from {name} import {missing[0]}")
    shown = name if names else name.partition(".")[0]
    origin = frame.t.roots.object(sys.modules).child("key", shown)
    frame.push(frame.t.look(frame.t.wrap(sys.modules[shown], origin)))


def _is_to_be_imported(module: Any, name: str) -> bool:
    """Whether `from module import name` imports a submodule of a package."""
    return (
        type(module) is ModuleType
        and {"__path__"} == {"__path__", "__getattr__", name} & vars(module).keys()
        and f"{module.__name__}.{name}" not in sys.modules
    )


@handles("IMPORT_FROM")
def import_from(frame: Frame, ins: Instr) -> None:
    module = frame.t.look(frame.stack[-1])
    try:
        frame.push(module.getattr(frame.t, ins.arg))
    except Raised:
        submodule = sys.modules.get(f"{module.describe()}.{ins.arg}")
        if submodule is None:
            raise Break("import", f"from {module.describe()} import {ins.arg}") from None
        frame.push(frame.t.pinned(submodule))


@handles("LOAD_ASSERTION_ERROR")
def load_assertion_error(frame: Frame, ins: Instr) -> None:
    frame.push(frame.t.pinned(AssertionError))
