"""Planted problems from the generator: one of each kind that tells most; all of them by the command in its docstring.

What is right is known from how a problem is made (tests/scenarios/advise_problems.py), not from advise.
"""

from __future__ import annotations

import pytest

from tests.scenarios.advise_problems import KINDS, problem, solve

SOLVED = ("layout_too_wide", "prefix_cache", "priority", "budget_and_slots", "client_cap")


@pytest.mark.long
@pytest.mark.parametrize("cause", SOLVED)
def test_the_planted_cause_comes_first_and_the_promise_is_kept(cause):
    found = solve(cause, 0)
    assert found.first and found.lever in KINDS[cause].levers, found
    assert found.verdict == "levers" and found.kept, found
    assert not {"quantisation", "kv_dtype"} & set(found.stack), found


@pytest.mark.long
def test_the_problems_are_the_same_in_every_process_and_differ_by_number():
    one, sound = problem("slots", 0)
    assert (one, sound) == problem("slots", 0) and one != problem("slots", 1)[0]
    assert list(one["engine"]) == ["max_num_seqs"] and "engine" not in sound and one["workload"] == sound["workload"]
