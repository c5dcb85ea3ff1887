"""Decoding a code object and assembling it again gives the same program."""

import collections
import dis
import types

import pytest

from frameloom.capture import instr
from frameloom.capture.instr import assemble, decode

MODULES = [
    collections,
    dis,
    types,
    pytest,
    instr,
    __import__("argparse"),
    __import__("contextlib"),
    __import__("asyncio").tasks,
]


def codes(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


def round_trip(code):
    copies = {id(i): i.copy() for i in decode(code)}
    for copy in copies.values():
        copy.target = copies[id(copy.target)] if copy.target is not None else None
    handlers = {}
    for copy in copies.values():
        if copy.handler is not None:
            h = copy.handler
            copy.handler = handlers.setdefault(
                id(h), instr.Handler(copies[id(h.target)], h.depth, h.lasti)
            )
    return assemble(
        list(copies.values()),
        code,
        varnames=code.co_varnames,
        cellvars=code.co_cellvars,
        freevars=code.co_freevars,
        stacksize=code.co_stacksize,
    )


def listing(code):
    return [
        (i.opname, None if isinstance(i.argval, types.CodeType) else i.argval, i.positions)
        for i in dis.get_instructions(code)
        if i.opname != "EXTENDED_ARG"
    ]


def tables(code):
    return [(e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code)]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_round_trip(module):
    with open(module.__file__) as file:
        whole = compile(file.read(), module.__file__, "exec")
    for code in codes(whole):
        new = round_trip(code)
        same_layout = len(new.co_code) == len(code.co_code)
        if same_layout:
            assert [x[0] for x in listing(new)] == [x[0] for x in listing(code)]
            assert [x[2] for x in listing(new)] == [x[2] for x in listing(code)], code
            assert tables(new) == tables(code)
            assert [x[1] for x in listing(new)] == [x[1] for x in listing(code)]


def test_runs_again():
    def f(xs, *, k=1):
        total = 0
        for x in xs:
            try:
                total += 1 // x
            except ZeroDivisionError:
                total += [y + k for y in xs][-1]
        return total

    new = types.FunctionType(round_trip(f.__code__), globals(), "f")
    assert new([1, 0, 2], k=5) == f([1, 0, 2], k=5)
