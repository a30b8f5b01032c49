"""The list of mutants cannot rot: each still applies, and the tests that should catch it are there. `make mutants`
runs them."""

from collections import Counter

import pytest

from mutants.everything import MUTANTS
from mutants.mutant import ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_patch_applies_exactly_once_and_its_tests_are_there(mutant: Mutant) -> None:
    assert mutant.found() == 1, f"the text to replace stands {mutant.found()} times in {mutant.file}"
    assert mutant.new != mutant.old
    assert mutant.tests
    for test in mutant.tests:
        file, *names = test.split("::")
        assert (ROOT / file).exists(), f"there is no {file}"
        text = (ROOT / file).read_text(encoding="utf-8") if names else ""
        for name in names:
            assert f"def {name.partition('[')[0]}(" in text, f"{file} has no test {name}"


def test_every_mutant_has_a_name_of_its_own_and_there_are_at_least_forty() -> None:
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []
    assert len(MUTANTS) >= 40
