"""C06: a prefill and a decode GPU against two that do both, searched on a small grid."""

from __future__ import annotations

import math

import pytest

from llmqsim.claims import c06
from llmqsim.claims.c06 import Point, Workload
from tests.claims.claims import measured, misses

WORKLOAD = Workload("A100", 1000, 256)


def point(split: float, both: float, ttft: float = math.nan) -> Point:
    return Point(WORKLOAD, (1.0, 0.02), "budget_512", split, both, ttft)


@pytest.mark.long
def test_it_holds_with_other_seeds_than_it_was_found_with():
    assert misses("C06") == set()
    assert (
        "found with seed 0, of seeds 1 and 2"
        in measured("C06")["goodput of a pair over two that do both"]["assumption"]
    )


@pytest.mark.long
def test_the_shares_are_nested():
    """What is as quoted in both is so in goodput, and what rises wins; and it is not everywhere."""
    wins, rises, quoted = (line["simulated"] for check, line in measured("C06").items() if check.startswith("share"))
    assert 0 < quoted <= rises <= wins < 1


def test_a_point_is_compared_with_the_best_of_two_that_do_both():
    assert point(3.0, 2.0).rises and not point(3.0, 2.5).rises and not point(3.0, 1.0).rises
    assert point(1.0, 0.0).ratio == math.inf
    near, far = point(1.75, 1.0, 0.44), point(1.4, 1.0, 0.3)
    assert c06._distance(near) < c06._distance(far) < c06._distance(point(1.0, 0.0)) == math.inf
    assert "token budget of 512" in str(near) and "1,000" in str(near) and "20 ms" in str(near)
