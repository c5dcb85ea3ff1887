"""A planted fault."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`before`, which occurs once in the file, becomes `after`."""

    name: str
    path: str
    before: str
    after: str
    wrong: str  # what some program then sees
    subject: str = ""  # of the list that it stands in

    @property
    def key(self) -> str:
        """Results are kept under it: another fault by the same name is another mutant."""
        parts = (self.path, self.before, self.after)
        return f"{self.name}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"

    @property
    def native(self) -> bool:
        return self.path.endswith((".c", ".cpp", ".h")) and self.path.startswith(
            ("capture/native", "runtime")
        )

    def applied(self, text: str) -> str:
        assert text.count(self.before) == 1, f"{self.name}: {text.count(self.before)} times"
        return text.replace(self.before, self.after)
