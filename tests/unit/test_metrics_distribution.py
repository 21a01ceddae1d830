"""Percentiles, means and the weighted gap histogram against numpy and against values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from llmqsim.metrics.distribution import WeightedGaps, describe_ns, describe_weighted_ns, exact_sum, ratio, std_ns
from llmqsim.records import GapHistogram


@pytest.mark.parametrize("n", [1, 2, 3, 10, 99, 100, 101, 1000])
def test_figures_agree_with_numpy(n):
    values = np.random.default_rng(n).integers(0, 10**12, n)
    figures = describe_ns(values)
    assert figures["n"] == n
    assert figures["mean"] == pytest.approx(values.mean() / 1e9, rel=1e-12)
    assert figures["max"] == values.max() / 1e9
    for percent in (50, 90, 95, 99):
        assert figures[f"p{percent}"] == pytest.approx(np.percentile(values, percent) / 1e9, rel=1e-12)
    assert std_ns(values) == pytest.approx(values.std() / 1e9, rel=1e-9, abs=1e-12)


def test_a_start_up_cohort_shows_in_p99_by_interpolation():
    # user case S05: 16 first tokens at 0.1 ... 1.6 s, 144 at 0.1 s
    values = np.array([100_000_000 * (i + 1) for i in range(16)] + [100_000_000] * 144)
    assert describe_ns(values)["p99"] == pytest.approx(1.441, abs=1e-12)


def test_nothing_has_no_figures():
    nothing = dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max")) | {"n": 0}
    assert describe_ns(np.zeros(0, dtype=np.int64)) == nothing
    assert std_ns(np.zeros(0)) is None
    assert ratio(1, 0) is None
    assert WeightedGaps(GapHistogram(1)).describe()["mean"] is None
    assert WeightedGaps(GapHistogram(1)).std() is None


@pytest.mark.parametrize("n", (1, 2, 7, 100))
def test_weights_stand_for_repetition(n):
    draw = np.random.default_rng(n)
    values, weights = draw.exponential(1e7, n), draw.integers(1, 9, n)
    assert describe_weighted_ns(values, weights) == pytest.approx(describe_ns(np.repeat(values, weights)), rel=1e-12)


def test_weights_need_no_memory():
    figures = describe_weighted_ns(np.array([1e9, 3e9]), np.array([10**12, 3 * 10**12]))
    assert (figures["n"], figures["mean"], figures["p50"]) == (4 * 10**12, 2.5, 3.0)


def test_sums_beyond_64_bits_are_exact():
    values = np.full(1000, 2**62 + 1, dtype=np.int64)
    assert exact_sum(values) == 1000 * (2**62 + 1)
    assert exact_sum(np.array([-5, 3], dtype=np.int64)) == -2
    assert exact_sum(np.array([0.1] * 10)) == math.fsum([0.1] * 10) == 1.0


def test_gap_percentiles_are_within_the_stated_error():
    random = np.random.default_rng(1)
    gaps = np.rint(random.lognormal(math.log(30e6), 0.7, 5000)).astype(np.int64)
    weights = random.integers(1, 64, 5000)
    histogram = GapHistogram(2)
    for gap, weight in zip(gaps.tolist(), weights.tolist(), strict=True):
        histogram.add(int(gap) % 2, gap, weight)
    every = np.repeat(gaps, weights)
    figures = WeightedGaps(histogram).describe()
    assert figures["n"] == len(every) and figures["max"] == every.max() / 1e9
    assert figures["mean"] == pytest.approx(every.mean() / 1e9, rel=1e-12)
    for percent in (50, 90, 95, 99):
        assert figures[f"p{percent}"] == pytest.approx(np.percentile(every, percent) / 1e9, rel=0.004)
    assert WeightedGaps(histogram).std() == pytest.approx(every.std() / 1e9, rel=0.004)
    odd = every[every % 2 == 1]
    assert WeightedGaps(histogram, [1]).describe()["n"] == len(odd)


def test_equal_gaps_are_exact():
    histogram = GapHistogram(1)
    histogram.add(0, 50_000_001, 7)
    figures = WeightedGaps(histogram).describe()
    assert {figures[k] for k in ("mean", "p50", "p90", "p99", "max")} == {0.050000001}
    assert WeightedGaps(histogram).std() == 0.0
