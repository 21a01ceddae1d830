"""The law of the two engines catches mistakes on purpose: see mutate.py."""

from __future__ import annotations

import pytest

from tests.laws.mutate import FOLDER, FOUND, MUTATIONS, ROOT, broken, verdict

SHORT = ("context growth frozen", "block boundary shifted", "form before deliver", "router's tie-break dropped")


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_has_one_place_in_its_function(name):
    file, *place = MUTATIONS[name]
    source = (ROOT / FOLDER / file).read_text()
    assert broken(source, *place) != source


@pytest.mark.parametrize("name", SHORT)
def test_the_law_catches(name):
    assert verdict(name).startswith(FOUND)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in MUTATIONS if name not in SHORT])
def test_the_law_catches_all(name):
    assert verdict(name).startswith(FOUND)
