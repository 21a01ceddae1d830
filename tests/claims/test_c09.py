"""C09: a ranking finishes more samples of a pool in a fixed time, at the same tokens per second; the guard undoes that."""

from __future__ import annotations

import pytest

from tests.claims.claims import measured, misses

pytestmark = pytest.mark.long


def test_it_holds():
    assert misses("C09") == set()
    assert sum(line["holds"] is True for line in measured("C09").values()) == 2


def test_more_to_choose_from_gains_more_and_turns_for_everybody_lose_all_of_it():
    samples, tokens, smaller, few, guarded, slower = (line["simulated"] for line in measured("C09").values())
    assert samples > smaller > 1 and few > 1.5
    assert guarded < 1 and slower < tokens
