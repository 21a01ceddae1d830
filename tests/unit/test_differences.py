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
    values = np.random.default_rng(3).exponential(size=2000)
    found = differences.percentile_difference(values, values + 0.5, 99, places(2000))
    assert found.low > 0 and found.mean == pytest.approx(0.5) and found.low <= 0.5 <= found.high
    alike = differences.percentile_difference(values, values, 99, places(2000))
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
