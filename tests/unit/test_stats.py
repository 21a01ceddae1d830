"""Intervals: exact on small samples, honest on shares and series, and their coverage measured where it takes long."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from llmqsim.metrics import stats


def test_a_t_interval_is_the_textbooks():
    got = stats.t_interval([1.0, 2.0, 4.0])
    half = scipy_stats.t.ppf(0.975, 2) * np.std([1, 2, 4], ddof=1) / math.sqrt(3)
    assert (got.mean, got.n, got.method) == (7 / 3, 3, "replications")
    assert got.low == pytest.approx(7 / 3 - half) and got.high == pytest.approx(7 / 3 + half)


def test_one_run_has_no_interval():
    got = stats.t_interval([3.0])
    assert (got.low, got.high, got.half, got.method) == (None, None, math.inf, "one run")
    assert not stats.precise(got, 1e9)


def test_equal_replications_leave_no_trace_of_rounding():
    assert stats.t_interval([0.1, 0.1, 0.1]).half == 0.0


def test_pairing_removes_what_both_share():
    noise = np.random.default_rng(0).normal(size=20)
    got = stats.paired(noise, noise + 1)
    assert got.mean == pytest.approx(1) and got.half < 1e-12


def test_replications_without_a_difference_give_no_degree_of_freedom():
    """Four of ten with one sign have it by chance in one of eight cases: 2 / 2^4."""
    zero, one = np.zeros(10), np.array([1.0] * 4 + [0.0] * 6)
    got = stats.paired(zero, one)
    error = np.std(one, ddof=1) / math.sqrt(10)
    assert got.low == pytest.approx(0.4 - scipy_stats.t.ppf(0.975, 3) * error) and got.low < 0
    assert stats.t_interval(one).low > 0


def test_what_nobody_showed_is_bounded_as_clopper_and_pearson_have_it():
    for total in (1, 50, 1000):
        assert stats.unseen(total) == pytest.approx(scipy_stats.binomtest(0, total).proportion_ci(0.95, "exact").high)


def test_runs_without_a_miss_do_not_prove_that_there_are_none():
    got = stats.share_interval([200] * 5, [200] * 5)
    assert got.mean == 1.0 and got.high == 1.0
    assert got.low == pytest.approx(stats.wilson(1000, 1000)[0]) and 0.996 < got.low < 0.9965


def test_wilson_is_scipys():
    for hits, total in ((0, 10), (3, 10), (10, 10), (950, 1000)):
        theirs = scipy_stats.binomtest(hits, total).proportion_ci(0.95, "wilson")
        assert stats.wilson(hits, total) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_replications_of_unequal_size_count_by_their_requests():
    assert stats.share_interval([10, 0], [10, 90]).mean == 0.1


def test_batches_of_independent_values_are_as_good_as_the_values():
    values = np.random.default_rng(1).normal(5, 1, 4000)
    got = stats.batch_means(values)
    assert got.settled and got.low < 5 < got.high and got.half < 3 * 1.96 / math.sqrt(4000)


def test_a_drifting_run_is_not_settled():
    values = np.linspace(0, 1, 4000) + np.random.default_rng(1).normal(0, 0.01, 4000)
    assert not stats.batch_means(values).settled


def test_a_percentile_that_the_run_can_not_tell_has_no_interval():
    values = np.random.default_rng(2).exponential(size=2000)
    assert stats.quantile_interval(values, 99.95) is None
    got = stats.quantile_interval(values, 90)
    assert got.low < math.log(10) < got.high


def test_verdicts_together():
    assert stats.together(["stable"] * 9 + ["unsettled"]) == "stable"
    assert stats.together(["overloaded"] * 3 + ["unsettled"]) == "overloaded"
    assert stats.together(["stable", "overloaded"]) == "unsettled" and stats.together([]) == "unsettled"


def test_jain():
    assert stats.jain(np.array([2.0, 2.0, 2.0])) == pytest.approx(1)
    assert stats.jain(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
    assert stats.jain(np.zeros(3)) is None


def lindley(gaps: np.ndarray, services: np.ndarray) -> np.ndarray:
    """Waits of a single server, first come first served: w' = max(0, w + s - a), as running minima of a walk."""
    walk = np.concatenate([[0.0], np.cumsum(services[:-1] - gaps[1:])])
    return walk - np.minimum.accumulate(walk)


@pytest.mark.long
@pytest.mark.parametrize(("load", "cv", "customers"), [(0.5, 1.0, 4000), (0.8, 1.0, 20000), (0.9, 1.0, 100000)])
def test_one_long_run_covers_the_theory_of_m_g_1(load, cv, customers):
    """Mean wait by Pollaczek-Khinchine, P90 and P50 by a run of 6 million: 92 to 98 % of 400 runs, up to their own noise."""
    spread = math.log(1 + cv * cv)
    generator = np.random.default_rng(7)

    def waits(n: int) -> np.ndarray:
        services = generator.lognormal(-spread / 2, math.sqrt(spread), n)
        return lindley(generator.exponential(1 / load, n), services)

    theory = load * (1 + cv * cv) / (2 * (1 - load))
    whole = waits(6_000_000)
    median, p90 = np.percentile(whole, [50, 90])
    share = float(np.mean(whole <= p90))
    covered = {"mean": [], "median": [], "p90": [], "share": []}
    for _ in range(400):
        run = waits(customers)
        intervals = {
            "mean": (stats.batch_means(run), theory),
            "median": (stats.quantile_interval(run, 50), median),
            "p90": (stats.quantile_interval(run, 90), p90),
            "share": (stats.batch_means(run <= p90, cut=False), share),
        }
        for name, (interval, truth) in intervals.items():
            if interval is not None:
                covered[name].append(interval.low <= truth <= interval.high)
    for name, hits in covered.items():
        assert len(hits) >= 380, name
        assert 0.905 <= np.mean(hits) <= 1.0, (name, np.mean(hits))
