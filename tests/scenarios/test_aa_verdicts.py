"""A reduced form of aa_verdicts: chance alone is called in 5 % of cases, planted differences in four of five."""

from __future__ import annotations

import numpy as np
import pytest

from tests.scenarios.aa_families import FAMILIES
from tests.scenarios.aa_verdicts import FROM, alike, pooled, power

SOME = tuple(family for family in FAMILIES if family.name in ("bursty", "near saturation", "other requests"))


@pytest.mark.long
def test_what_differs_by_chance_is_called_as_often_as_the_confidence_says():
    """By definition: 5 %. Of 30 comparisons a kind: no kind is shown to be above it, and all together stay below 7 %.

    P99s, with the spread of the P99s of batches taken for that of the whole run's, were called in 13 to 33 %.
    """
    counts = pooled(alike(SOME, 10), 2)
    for (way, kind), one in counts.items():
        rate = one.rate()
        if rate is not None and sum(one.judged) >= 100:
            assert rate.low <= 0.05, (way, kind, rate)
        assert way == "one run" or one.refused() == 0, kind
    for way in FROM:
        these = [one for (its, _), one in counts.items() if its == way]
        false, judged = sum(sum(one.false) for one in these), sum(sum(one.judged) for one in these)
        assert judged > 2000 and 0.005 < false / judged < 0.07, way


@pytest.mark.long
def test_a_difference_of_twice_what_would_have_been_seen_is_called():
    """Four of five: all figures together from ten replications; from one run means and percentiles below the P99 (the other
    figures fall short of it there, docs/compare.md)."""
    found = power(SOME[:1], 6)
    for way, kinds in (("ten replications", None), ("one run", ("means", "P50 to P95"))):
        hits = [hit for (w, kind), its in found.items() if w == way and (kinds is None or kind in kinds) for hit in its]
        assert len(hits) > 20 and np.mean(hits) >= 0.8, way
