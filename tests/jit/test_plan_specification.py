"""The specification of a plan is plain data: another process can load its bytes and run it."""

import dataclasses
import pickle

import pytest
import torch
import torch.nn.functional as F

import frameloom
from frameloom.backend import assemble
from frameloom.config import config
from frameloom.runtime import spec as types
from tests.fresh import run

pytestmark = pytest.mark.compiled
DATA = (
    int,
    float,
    bool,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.memory_format,
    torch.layout,
)


def specifications(fn, *args, **options):
    """The specifications of the plans of a call, and its result."""
    made = []

    def noted(spec, lookup):
        made.append(spec)
        return link(spec, lookup)

    link, assemble.link = assemble.link, noted
    try:
        return frameloom.jit(fn, **options)(*args), made
    finally:
        assemble.link = link


def leaves(part):
    if dataclasses.is_dataclass(part):
        assert type(part).__module__ == types.__name__
        part = [getattr(part, f.name) for f in dataclasses.fields(part)]
    if isinstance(part, dict):
        part = [*part, *part.values()]
    if isinstance(part, tuple | list | frozenset):
        for one in part:
            yield from leaves(one)
    else:
        yield part


def convolved(x, w):
    return F.conv2d(x, w).relu().sum((2, 3)) @ torch.ones(3, 2)


def indexed(x, k):
    return x[k].softmax(-1)


def drawn(x):
    return F.dropout(x, 0.5) + torch.rand_like(x)


PROGRAMS = [
    (convolved, torch.randn(2, 3, 8, 8), torch.randn(3, 3, 2, 2)),
    (indexed, torch.randn(6, 5), torch.tensor([1, 5])),
    (drawn, torch.randn(9)),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p[0].__name__)
def test_it_holds_data_only(program, dynamic):
    fn, *args = program
    with torch.no_grad():
        _, made = specifications(fn, *args, dynamic=dynamic)
    assert made
    for leaf in leaves(tuple(made)):
        assert isinstance(leaf, DATA), leaf


def test_another_process_runs_its_bytes(tmp_path):
    x, y = torch.randn(40), torch.randn(40)
    with torch.no_grad():
        result, (spec,) = specifications(lambda a, b: (a * b).sin() + 1, x, y, dynamic=True)
    torch.save((x, y, result), tmp_path / "tensors")
    (tmp_path / "spec").write_bytes(pickle.dumps(spec))
    symbol = next(s.address.key[1] for s in spec.steps if isinstance(s, types.KernelCall))
    libraries = sorted(config.cache_dir.rglob("*.so"), key=lambda path: path.stat().st_mtime)
    library = next(path for path in libraries[::-1] if symbol.encode() in path.read_bytes())
    program = f"""
import pickle, torch
from frameloom.capture._capture import RunPlainly
from frameloom.runtime import _runtime
from frameloom.runtime.link import link
library = _runtime.load_library({str(library)!r})
objects = {{"library": lambda k: library, "symbol": lambda k: _runtime.symbol(library, k[1]), "hook": lambda k: RunPlainly}}
spec = pickle.loads(open({str(tmp_path / "spec")!r}, "rb").read())
plan = _runtime.Plan(link(spec, lambda name: objects[name.kind](name.key)))
x, y, result = torch.load({str(tmp_path / "tensors")!r})
assert torch.equal(plan(x, y)[0], result)
assert plan(x[:7], y[:7])[0].shape == (7,)
"""
    run(program, check=True)
