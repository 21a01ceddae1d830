"""C08: shortest first by a learned ranking answers sooner above saturation, and changes nothing where no queue stands."""

from __future__ import annotations

import pytest

from tests.claims.claims import measured, misses

pytestmark = pytest.mark.long


def test_it_holds():
    assert misses("C08") == set()
    assert all(line["holds"] for line in measured("C08").values())


def test_the_gain_grows_with_the_load_and_true_lengths_would_gain_more():
    below, above, far, oracle = (line["simulated"] for line in measured("C08").values())
    assert below == pytest.approx(1, abs=0.02)
    assert below < above < far
    assert oracle > 1
