"""Sizing is right: what it returns keeps the target in runs ten times as long, one replica less does not."""

from __future__ import annotations

import pytest

from tests.scenarios.size_problems import KINDS, problem, solve


@pytest.mark.long
@pytest.mark.parametrize("number", [13, 17, 19, 25, 30])
def test_a_random_problem(number):
    """One each of classes, short (overloaded in the run that is asked for), bursty, short and prefixes."""
    found = solve(number)
    assert found["verdict"] == "feasible"
    assert found["at"].keeps and found["less"].doubtful


def test_the_problems_are_the_same_in_every_process():
    assert problem(9) == problem(9) and problem(9) != problem(10)
    assert [problem(n)["name"].split()[0] for n in range(len(KINDS))] == list(KINDS)
    rate = problem(0)["workload"]["arrivals"]["rate"]
    assert problem(0)["model"] == "llama-3.1-8b" and 1 < rate < 1000


@pytest.mark.long
def test_intervals_hold_the_truth_on_an_llm_server():
    """92 to 98 % of 200, up to the noise of 200 runs (a true 92 % gives 86 % once in a thousand times)."""
    from tests.scenarios.interval_coverage import coverage

    found = coverage(200)
    assert 0.5 < found.pop("attainment") < 0.999
    for name, share in found.items():
        assert share >= (0.86 if "one run" in name else 0.8), (name, share)
