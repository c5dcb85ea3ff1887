"""All mutants, from the list of each subject."""

from dataclasses import replace

from tests.mutants import (
    caches,
    capturing,
    fusion,
    gradients,
    guards,
    indexes,
    memory,
    native,
    rewrites,
    schedules,
)
from tests.mutants.mutant import Mutant

_LISTS = {
    "rewrite rules": rewrites.MUTANTS,
    "index algebra": indexes.MUTANTS,
    "fusion": fusion.MUTANTS,
    "memory plans": memory.MUTANTS,
    "autograd": gradients.MUTANTS,
    "capture": capturing.MUTANTS,
    "schedules": schedules.MUTANTS,
    "guards": guards.MUTANTS,
    "native runtime": native.MUTANTS,
    "caches": caches.MUTANTS,
}

MUTANTS: tuple[Mutant, ...] = tuple(
    replace(mutant, subject=subject) for subject, rows in _LISTS.items() for mutant in rows
)
