"""Differences within one run: widths against closed forms, influences against finite changes, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from llmqsim.metrics import differences, stats
from llmqsim.metrics.differences import Places, placed
from llmqsim.planner.figures import percentile

T19 = stats.t_quantile(0.95, 19)


def places(rows: int, paired: bool = True) -> Places:
    place = placed(np.arange(rows), rows)
    return Places(place, place, paired)


def mean_half(draw, percent: float, paired: bool, times: int = 25) -> float:
    """Mean half width over draws of (a, b)."""
    found = []
    for _ in range(times):
        a, b = draw()
        found.append(differences.percentile_difference(a, b, percent, places(len(a), paired)).half)
    return float(np.mean(found))


def test_the_width_is_that_of_the_p90_of_exponentials():
    """Asymptotic variance of a quantile: p (1 - p) / (n f(q)^2) (Mosteller 1946); of an exponential f(q) = 1 - p."""
    generator, rows = np.random.default_rng(0), 4000
    half = mean_half(lambda: generator.exponential(size=(2, rows)), 90, False)
    # correlation between batches is only ever taken as 0 or more, which widens independent values a little
    assert half == pytest.approx(T19 * math.sqrt(2 * 0.9 / 0.1 / rows), rel=0.2)


def test_pairing_narrows_the_median_of_normals_as_sheppard_has_it():
    """Both below their medians: 1/4 + asin(r) / 2 pi (Sheppard 1899); so their difference has a closed variance."""
    generator, rows, r = np.random.default_rng(1), 4000, 0.9

    def draw():
        a, other = generator.normal(size=(2, rows))
        return a, r * a + math.sqrt(1 - r * r) * other

    variance = 2 * (1 / 4 - math.asin(r) / (2 * math.pi)) * 2 * math.pi / rows
    assert mean_half(draw, 50, True) == pytest.approx(T19 * math.sqrt(variance), rel=0.2)


def test_percentiles_of_runs_that_differ_by_chance_are_rarely_called():
    """Waits of a queue (Lindley's recursion) under two draws of its services: 5 % of 100, up to their own noise."""
    generator, rows, called, judged = np.random.default_rng(2), 2000, 0, 0
    for _ in range(100):
        gaps = generator.exponential(1 / 0.8, rows)
        a, b = (_waits(gaps, generator.exponential(size=rows)) for _ in range(2))
        found = differences.percentile_difference(a, b, 90, places(rows))
        judged += found.low is not None
        called += found.low is not None and not found.low <= 0 <= found.high
    assert judged > 50 and called <= 0.1 * judged


def _waits(gaps: np.ndarray, services: np.ndarray) -> np.ndarray:
    walk = np.concatenate([[0.0], np.cumsum(services[:-1] - gaps[1:])])
    return walk - np.minimum.accumulate(walk)


def test_a_shift_is_found_and_nothing_else():
    values = np.random.default_rng(3).exponential(size=3000)
    found = differences.percentile_difference(values, values + 0.5, 99, places(3000))
    assert found.low > 0 and found.mean == pytest.approx(0.5) and found.low <= 0.5 <= found.high
    alike = differences.percentile_difference(values, values, 99, places(3000))
    assert (alike.mean, alike.low, alike.high) == (0.0, 0.0, 0.0)


def test_equal_percentiles_of_constants_are_not_called():
    """Both medians are the one constant, although more of b lies above it."""
    generator = np.random.default_rng(4)
    a, b = (np.where(generator.random(4000) < share, 10.0, 20.0) for share in (0.8, 0.6))
    found = differences.percentile_difference(a, b, 50, places(4000))
    assert found.mean == 0 and found.low <= 0 <= found.high


def test_one_bad_spell_does_not_tell_a_p99():
    """40 requests beyond the P99, all in one of 20 batches: no pattern of signs there speaks against chance."""
    a, b = np.random.default_rng(5).random((2, 4000))
    a[1000:1040] += 100
    b[1000:1050] += 200
    found = differences.percentile_difference(a, b, 99, places(4000))
    assert found.low is None and found.high is None and not found.settled


@pytest.mark.parametrize(
    ("influence", "figure"),
    [
        (differences.of_mean, lambda v, w: (w @ v) / w.sum()),
        (differences.of_jain, lambda v, w: (w @ v) ** 2 / w.sum() / (w @ v**2)),
        (lambda v: differences.of_ratio(v, v**2), lambda v, w: (w @ v) / (w @ v**2)),
    ],
)
def test_an_influence_is_what_a_little_more_weight_does(influence, figure):
    """The derivative of the figure by the weight of one request, by a finite step."""
    values = np.random.default_rng(6).exponential(size=50)
    told, step = influence(values), 1e-6
    assert told.sum() == pytest.approx(0, abs=1e-12)
    for row in (0, 17, 49):
        more = np.ones(50)
        more[row] += step
        assert told[row] == pytest.approx((figure(values, more) - figure(values, np.ones(50))) / step, rel=1e-3)


def test_what_has_no_value_has_no_influence():
    values = np.array([1.0, np.nan, 3.0])
    assert differences.of_mean(values).tolist() == [-0.5, 0.0, 0.5]
    assert not differences.of_mean(np.full(3, np.nan)).any() and not differences.of_jain(np.full(3, np.nan)).any()


def test_the_memory_of_a_run_is_that_of_its_process():
    """Sums of m terms of AR(1) vary by m (1 + f) / (1 - f) - 2 f (1 - f^m) / (1 - f)^2 (Law and Kelton, ch. 4)."""
    generator, f, rows = np.random.default_rng(7), 0.9, 4000

    def of_sum(m: int) -> float:
        return m * (1 + f) / (1 - f) - 2 * f * (1 - f**m) / (1 - f) ** 2

    found = []
    for _ in range(40):
        noise, series = generator.normal(size=rows), np.zeros(rows)
        for i in range(1, rows):
            series[i] = f * series[i - 1] + noise[i]
        found.append(differences.memory(np.zeros(rows), series, 10))
    truth = of_sum(200) / 200 / (of_sum(20) / 20)
    assert 0.95 * truth < np.mean(found) < 1.6 * truth  # above it: correlation between batches is taken as 0 or more


def test_batches_that_are_alike_in_both_give_no_degree_of_freedom():
    """Four batches with one sign have it by chance in one of eight cases; t with 19 degrees would call it."""
    parts = np.zeros(20)
    parts[[2, 7, 11, 16]] = 1.0
    assert differences.of_parts(0.2, parts, 20, skewed=False).low > 0
    assert differences.of_parts(0.2, parts, 4, skewed=False).low < 0


def test_the_percentile_is_numpys_bit_for_bit():
    generator = np.random.default_rng(8)
    for rows in (1, 2, 3, 10, 101, 1234):
        values = generator.exponential(size=rows)
        for percent in (50, 90, 95, 99):
            assert percentile(values, percent) == float(np.percentile(values, percent))


def hanging_together(generator: np.random.Generator, correlation: float, times: int, length: int = 20) -> np.ndarray:
    """Stretches of AR(1) series of variance 1, float64[times, length]."""
    found = np.empty((times, length))
    found[:, 0] = generator.normal(size=times)
    for i in range(1, length):
        noise = generator.normal(size=times) * math.sqrt(1 - correlation**2)
        found[:, i] = correlation * found[:, i - 1] + noise
    return found


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_degrees_of_freedom_are_those_of_the_spread_of_what_hangs_together(correlation):
    """A variance of f degrees of freedom spreads by sqrt(2 / f) of itself (chi-square); counted over 4,000 stretches."""
    spreads = (hanging_together(np.random.default_rng(8), correlation, 4000, 200) ** 2).mean(axis=1)
    counted = 2 / (spreads.std() / spreads.mean()) ** 2 / 200
    assert (differences.degrees(20, correlation) + 1) / 20 == pytest.approx(counted, rel=0.06)
    assert differences.degrees(4, correlation) == 3


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 0.07), (0.3, 0.1), (0.5, 0.13)])
def test_batches_that_hang_together_are_rarely_called_by_chance(correlation, most):
    """5 % of intervals of 20 batches whose true mean is 0 leave it out where they do not hang together; more where they
    do, as 20 values show too little of it: t with 19 degrees, refused from 0.5 seen on, has 9 and 16 % at 0.3 and 0.5."""
    stretches = hanging_together(np.random.default_rng(9), correlation, 600)
    found = [differences.of_parts(float(parts.mean()), parts, 20, skewed=False) for parts in stretches]
    called = [not one.low <= 0 <= one.high for one in found if one.settled]
    assert len(called) > 560 and np.mean(called) <= most


def test_the_end_of_a_run_that_falls_behind_is_a_difference_and_noise_is_none():
    """Ends: what the end of the run would add, had it ended after each batch. Growing all along it is one; else by chance."""
    quiet = np.random.default_rng(10).normal(scale=0.01, size=20)
    behind = np.linspace(0, 2, 20)
    assert differences.of_parts(2.0, quiet, 20, ends=behind).low > 0
    noise = np.random.default_rng(11).normal(size=(500, 20))
    told = [differences.of_parts(float(ends[-1]), quiet, 20, ends=ends) for ends in noise]
    assert np.mean([not one.low <= 0 <= one.high for one in told]) <= 0.08


def test_a_spread_may_be_as_much_larger_as_chi_square_has_it():
    """Quantiles at 20 % from a table: 5.380 for 9 degrees, 13.716 for 19."""
    assert stats.spread_limit(9) == pytest.approx(math.sqrt(9 / 5.380), rel=1e-3)
    assert stats.spread_limit(19) == pytest.approx(math.sqrt(19 / 13.716), rel=1e-3)


def test_a_percentile_that_few_requests_lie_beyond_is_refused():
    values = np.random.default_rng(12).exponential(size=(2, 2900))
    found = differences.percentile_difference(values[0], values[1] + 5, 99, places(2900))
    assert (found.low, found.high, found.n) == (None, None, 0)
