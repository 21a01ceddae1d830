"""The law of the two engines catches mistakes on purpose: see mutate.py."""

from __future__ import annotations

import pytest

from tests.laws.mutate import FOUND, MUTATIONS, verdict

SHORT = ("context growth frozen", "block boundary shifted", "form before deliver", "router's tie-break dropped")


@pytest.mark.parametrize("name", SHORT)
def test_the_law_catches(name):
    assert verdict(name).startswith(FOUND)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in MUTATIONS if name not in SHORT])
def test_the_law_catches_all(name):
    assert verdict(name).startswith(FOUND)
