"""The list of planted faults stays one of faults that can be planted."""

import pytest

from tests.mutants.planted import MUTANTS
from tests.mutants.tree import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_what_a_mutant_changes_is_there_once(mutant):
    assert mutant.applied((ROOT / mutant.path).read_text()) != (ROOT / mutant.path).read_text()


def test_mutants_have_names_of_their_own():
    assert len({m.name for m in MUTANTS}) == len(MUTANTS) == 60
