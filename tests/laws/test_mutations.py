"""The law of the two engines catches mistakes on purpose: see mutate.py."""

from __future__ import annotations

import pytest

from tests.laws.mutate import FOLDER, FOUND, MUTATIONS, ROOT, verdict

SHORT = ("context growth frozen", "block boundary shifted", "form before deliver", "router's tie-break dropped")


def test_every_mutation_has_one_place():
    places = {name: (ROOT / FOLDER / file).read_text().count(right) for name, (file, right, _) in MUTATIONS.items()}
    assert [name for name, count in places.items() if count != 1] == []


@pytest.mark.parametrize("name", SHORT)
def test_the_law_catches(name):
    assert verdict(name).startswith(FOUND)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in MUTATIONS if name not in SHORT])
def test_the_law_catches_all(name):
    assert verdict(name).startswith(FOUND)
