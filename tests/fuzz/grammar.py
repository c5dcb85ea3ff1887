"""Draws a program: the text of a script.  Lines that plain Python refuses in most calls are left out."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.fuzz import prelude, support, templates
from tests.fuzz.inputs import DTYPES, Inputs, Step
from tests.fuzz.trials import on_the_cpu, runs

SUBJECTS = {
    "elementwise": templates.ELEMENTWISE, "views": templates.VIEWS, "reductions": templates.REDUCTIONS, "makers": templates.MAKERS, "random": templates.RANDOM, "data": templates.DATA,
}  # fmt: skip
STATEMENTS = {"control": templates.CONTROL, "autograd": templates.AUTOGRAD, "training": templates.TRAINING, "objects": templates.OBJECTS, "writes": templates.WRITES}  # fmt: skip
MODES = ("no_grad", "inference", "autocast", "float64")


@dataclass
class Names:
    """The variables that can be read where a statement stands."""

    tensors: list[str]
    ints: list[str]
    lists: list[str]

    def copy(self) -> Names:
        return Names([*self.tensors], [*self.ints], [*self.lists])


@dataclass
class Program:
    """Draws everything from one seed; `text` is the script."""

    seed: int
    avoid: str = ""  # templates in which this is found are left out
    text: str = ""
    _fresh: int = 0
    _lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if support.DEVICE == "cpu":
            return self._draw()
        with on_the_cpu():
            self._draw()

    def _draw(self) -> None:
        self.choose = random.Random(self.seed)
        self._draw_style()
        inputs = Inputs(self.choose, self.grad)
        self._steps = [inputs.step(k) for k in range(self.choose.choice((2, 3, 4, 6)))]
        self._draw_lines(self.choose.choice((5, 8, 8, 12, 12, 20, 30, 60)))
        self.text = self._script(self._lines, self._result, self._all_steps(), self._options())

    # --- choices that hold for the whole program

    def _draw_style(self) -> None:
        choose = self.choose
        self.grad = choose.random() < 0.45
        self.drive = choose.choice(prelude.DRIVES)
        self.expressions = choose.choices(
            list(SUBJECTS), (6, 6, 3, 4, 0.5, 0.7), k=choose.choice((2, 3, 4))
        )
        weights = (5, 3 if self.grad else 1, 1, 4, 6)
        self.subjects = choose.choices(list(STATEMENTS), weights, k=choose.choice((1, 2, 2, 3)))
        self.layer = choose.choice(prelude.LAYERS)
        self.optimizer = choose.choice(prelude.OPTIMIZERS)

    def _options(self) -> str:
        choose = self.choose
        made = [f"dynamic={choose.choice((None, None, None, True, True, False))}"]
        drawn = choose.random()
        if drawn < 0.06:
            made.append("options={'freezing': True}")
        elif drawn < 0.1:
            made.append("options={'memory_budget': 0.5}")
        elif drawn < 0.14:
            made.append("backend='eager'")
        elif drawn < 0.18:
            made.append(f"mode={choose.choice(('reduce-overhead', 'max-autotune'))!r}")
        return f"dict({', '.join(made)})"

    # --- the script

    def _script(
        self, lines: Sequence[str], result: str, steps: Sequence[Step], options: str
    ) -> str:
        body = "".join(f"    {line}\n" for line in [*lines, f"return {result}"])
        trained = prelude.TRAINED.format(optimizer=self.optimizer)
        listed = "".join(f"    ({s.name}, {s.mode!r}, {s.change_name}),\n" for s in steps)
        return (
            f"# seed {self.seed}\n{prelude.HEAD}{prelude.BODY}LAYER = {self.layer}\n{trained}\n"
            f"def fn({prelude.ARGUMENTS}):\n{body}\n{''.join(s.text + s.change for s in steps)}\n"
            f"STEPS = [\n{listed}]\nOPTIONS = {options}\n{self.drive}"
        )

    def _all_steps(self) -> list[Step]:
        """With what is changed between calls, and calls that come again."""
        choose, steps = self.choose, []
        often = choose.choice((0, 0, 0.3, 0.6))
        for k in range(len(self._steps) + choose.choice((0, 1, 2))):
            more = k >= len(self._steps)
            step = replace(choose.choice(self._steps), text="") if more else self._steps[k]
            if k and choose.random() < often:
                n, i = choose.choice((0.5, -1.0, 2)), choose.choice((0, 1, 5))
                what = choose.choice(prelude.CHANGES).format(n=n, i=i)
                name = f"change_{k}"
                step = replace(step, change_name=name, change=f"def {name}():\n    {what}\n")
            if k and choose.random() < often / 2:
                step = replace(step, mode=choose.choice(MODES))
            steps.append(step)
        return steps

    # --- statements

    def _draw_lines(self, wanted: int) -> None:
        names = Names(["x", "y", "z"], ["n"], ["parts"])
        tries = 0
        statements = 0
        while statements < wanted and tries < 6 * wanted:
            tries += 1
            now = names.copy()
            lines = self._statement(now, 0)
            if self._runs([*self._lines, *lines], "None"):
                self._lines += lines
                names = now
                statements += 1
        if self.choose.random() < 0.12:
            self._lines.append(self._filled(self._one_of(templates.RAISING), names, 0))
        self._result = "None"
        for _ in range(10):
            parts = [
                self.choose.choice(names.tensors) for _ in range(self.choose.choice((1, 2, 3)))
            ] + [self._filled("$v", names, 0)]
            if self._runs(self._lines, result := f"({', '.join(parts)})"):
                self._result = result
                break

    def _statement(self, names: Names, depth: int) -> list[str]:
        choose = self.choose
        subject = choose.choice(self.subjects)
        if choose.random() < 0.4 or (depth > 1 and subject == "control"):
            template = self._one_of(templates.STATEMENTS)
        else:
            template = self._one_of(STATEMENTS[subject])
        lines: list[str] = []
        made: dict[str, str] = {}
        inner = names.copy()
        for part in template.split(";"):
            line = part.rstrip() if part.startswith(" ") else part.strip()
            line = re.sub(
                r"(?<![\w$.'\"])[TIVLQ]\b(?!['\"(])",
                lambda m: made.setdefault(m[0], self._new(m[0])),
                line,
            )
            if line.strip() == "S":
                pad = line[: len(line) - len(line.lstrip())]
                block = inner.copy()
                lines += [
                    pad + s
                    for _ in range(choose.choice((1, 1, 2)))
                    for s in self._statement(block, depth + 1)
                ]
                continue
            lines.append(self._filled(line, inner, depth))
        for letter, kind in (("T", names.tensors), ("I", names.ints), ("L", names.lists)):
            kind += [made[letter]] if letter in made else []
        return lines

    def _one_of(self, table: Sequence[str]) -> str:
        while True:
            template = self.choose.choice(table)
            if not self.avoid or re.search(self.avoid, template) is None:
                return template

    def _new(self, letter: str) -> str:
        self._fresh += 1
        return f"{letter.lower()}{self._fresh}"

    def _filled(self, template: str, names: Names, depth: int) -> str:
        """With everything drawn that it leaves open."""
        choose = self.choose

        def put(m: re.Match[str]) -> str:
            kind = m[1]
            if kind == "x":
                return (
                    choose.choice(names.tensors[-5:])
                    if choose.random() < 0.6
                    else choose.choice(names.tensors)
                )
            if kind == "l":
                return choose.choice(names.lists)
            if kind == "d":
                return choose.choice(("0", "-1", "1"))
            if kind == "D":
                return choose.choice(DTYPES)
            if kind in "cs" or (depth > 2 and kind == "i"):
                return str(choose.choice((1, 2, 3) if kind == "s" else (0, 1, 2, 3, 4, 5, -1)))
            if kind == "i" and choose.random() < 0.3:
                return choose.choice(names.ints)
            if kind == "t" and (depth > 2 or choose.random() < 0.5):
                return choose.choice(names.tensors)
            table = self._table(kind)
            short = table[:16] if depth > 1 and kind in "ibn" else table
            found = self._filled(self._one_of(short), names, depth + 1)
            return f"({found})" if kind in "inbt" and not re.fullmatch(r"[\w.]+", found) else found

        return re.sub(r"\$([a-zA-Z])", put, template)

    def _table(self, kind: str) -> list[str]:
        if kind == "t":
            return SUBJECTS[self.choose.choice(self.expressions)]
        if kind == "w":
            return templates.WRITES if self.choose.random() < 0.6 else templates.OBJECTS
        return {
            "i": templates.INTS,
            "n": templates.FLOATS,
            "b": templates.BOOLS,
            "v": templates.VALUES,
            "e": templates.RAISING,
        }[kind]

    def _runs(self, lines: Sequence[str], result: str) -> bool:
        return runs(self._script(lines, result, self._steps, "{}"), len(self._steps) > 2)
