"""The law of the two engines for prefill and decode pools: equal tables, marks, usage, gaps, links and step logs."""

from __future__ import annotations

import pytest

from tests.laws.compiled_split_cases import differences, split_case

SHORT, LONG = range(500), range(500, 6_500)


def check(seeds: range) -> None:
    """Every case agrees."""
    for seed in seeds:
        told = differences(seed)
        assert not told, f"case {seed}: {told}: {split_case(seed)}"


def test_the_engines_agree_on_pools():
    check(SHORT)


@pytest.mark.long
def test_the_engines_agree_on_pools_on_thousands():
    check(LONG)
