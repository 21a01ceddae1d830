"""C12: a classifier that takes a few short answers for giants makes their tail worse long before it makes the mean worse."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim.claims.c12 import LOADS, crossing
from tests.claims.claims import measured, misses


def test_the_crossing_of_a_line():
    ratios = {0.1: np.array([0.4, 0.6]), 0.3: np.array([1.0, 2.0]), 0.5: np.array([3.0, 3.0])}
    assert crossing(ratios) == pytest.approx(0.2)
    assert crossing({0.0: np.array([1.5])}) == 0
    assert crossing({0.0: np.array([0.5]), 0.5: np.array([1.0])}) == float("inf")


@pytest.mark.long
def test_it_holds():
    assert misses("C12") == set()


@pytest.mark.long
def test_the_tail_turns_first_and_giants_taken_for_short_do_less_harm():
    told = {check: line["simulated"] for check, line in measured("C12").items()}
    for load in LOADS:
        mean = told[f"misclassification from which its mean is worse, load {load:g}"]
        assert (
            told[f"misclassification from which its P99 is worse, load {load:g}"]
            < (0.6 if mean is None else mean) / 1.5
        )
        where = f"P99 wait of the shorter half over fcfs, load {load:g}"
        assert told[f"{where}, half of the giants taken for short"] < told[f"{where}, 50% misclassified"] / 1.5
