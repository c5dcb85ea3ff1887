"""Loops over containers that the program changes meanwhile.

`sweep_iterated(seed, count)` tells which drawn programs differ from eager: in what they see, in what the containers hold behind, or in what they raise.
"""

from __future__ import annotations

import collections
import random
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch

import frameloom
from tests.fuzz.interpret import interpreted


class Own:
    def __init__(self) -> None:
        self.a, self.b, self.l, self.d = 1, 2, [1, 2], {"p": 1, "q": 2}


class Rows(list):  # type: ignore[type-arg]
    pass


MADE = {
    "l": "[1, 2, 3]", "d": "{'a': 1, 'b': 2, 'c': 3}", "s": "{1, 2, 3}", "q": "collections.deque([1, 2, 3])",
    "od": "collections.OrderedDict(a=1, b=2)", "dd": "collections.defaultdict(int, a=1, b=2)", "c": "collections.Counter('aab')",
    "o": "Own()", "rows": "Rows([1, 2, 3])", "n": "[[1, 2], [3]]", "ns": "types.SimpleNamespace(a=1, b=2)", "t": "{'w': x, 'v': x + 1}",
}  # fmt: skip
OVER = (
    "l", "d", "d.items()", "d.values()", "list(d)", "s", "q", "od", "od.items()", "dd.items()", "c.items()", "vars(o)", "vars(o).items()", "o.l",
    "o.d.items()", "rows", "n", "n[0]", "ns.__dict__.items()", "t.items()", "t.values()", "enumerate(l)", "zip(l, d.values())", "reversed(l)",
    "reversed(d.values())", "map(str, l)", "(w for w in d.values())", "sorted(d)", "range(len(l))", "filter(None, l)", "zip(d, od.items())", "iter(l)",
)  # fmt: skip
CHANGES = (
    "l.append(7)", "l[-1:] = [5]", "l[0] = 9", "l.pop()", "l.insert(0, 8)", "l.reverse()", "del l[0]", "d['a'] = 9", "d['b'] = len(seen)", "d['c'] = x",
    "d.update(b=5)", "d['z'] = 1", "d.pop('c', None)", "d |= {'c': 4}", "del d['b']", "d.clear()", "s.add(9)", "s.discard(2)", "q.append(4)", "q[0] = 6",
    "od['b'] = 8", "od.move_to_end('a')", "dd['a'] += 1", "dd['z']", "c['a'] += 1", "o.b += 1", "o.new = 3", "o.l.append(3)", "o.d['q'] = 9", "rows[1] = 5",
    "n[0].append(3)", "n[-1] = [9]", "n.append([4])", "ns.b = 6", "ns.c = 1", "t['v'] = x * 3", "t['v'].add_(1)", "x = x + 1", "l = [7]", "d = {'n': 1}",
    "vars(o)['a'] = 2", "seen.append(list(d.values()))", "continue", "frameloom.graph_break()",
)  # fmt: skip


class Drawn:
    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.given = [name for name in MADE if draw.random() < 0.5]
        body = [f"{name} = {made}" for name, made in MADE.items() if name not in self.given]
        for _ in range(draw.choice((1, 1, 2))):
            lines = [draw.choice(CHANGES) for _ in range(draw.choice((1, 2, 3)))]
            lines.insert(draw.choice((0, len(lines))), "seen.append(v)")
            body += ["k = 0", f"for v in {draw.choice(OVER)}:", "    k += 1", "    if k > 5: break"]
            body += [f"    {line}" for line in lines]
        given = "".join(f", {name}" for name in self.given)
        lines = [f"def fn(x{given}):", "seen = []", *body, f"return seen, x, [{', '.join(MADE)}]"]
        self.text = "\n    ".join(lines)
        self.how = draw.choice(({}, {}, {"dynamic": True}, {"backend": "eager"}))

    def function(self) -> Any:
        modules = {"collections": collections, "types": types, "frameloom": frameloom}
        names: dict[str, Any] = {**modules, "Own": Own, "Rows": Rows}
        exec(self.text, names)
        return names["fn"]

    def seen(self, fn: Any) -> list[Any]:
        seen = []
        for size in (1, 2):
            x = torch.ones(size)
            given = {name: eval(MADE[name], {**globals(), "x": x}) for name in self.given}
            try:
                seen.append(_shown(fn(x, **given)))
            except Exception as error:
                seen.append(f"{type(error).__name__}: {str(error)[:60]}")
            seen.append(_shown(given))
        return seen


def _shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return [[key, _shown(v)] for key, v in value.items()]
    if isinstance(value, list | tuple | set | collections.deque):
        return [_shown(v) for v in value]
    return _shown(vars(value)) if hasattr(value, "__dict__") else value


def sweep_iterated(seed: int = 0, count: int = 2000) -> Iterator[str]:
    with warnings.catch_warnings(), interpreted():
        warnings.simplefilter("ignore")
        for k in range(seed, seed + count):
            program = Drawn(k)
            frameloom.reset()
            jitted = frameloom.jit(program.function(), **program.how)
            expected, found = program.seen(program.function()), program.seen(jitted)
            if found != expected:
                yield f"{k}: {program.text}\n{program.how}: {found} for {expected}"
