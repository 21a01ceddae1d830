"""Arrival processes against their laws. Bounds are five standard errors, or Kolmogorov's at a risk of 1e-5."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammainc

from llmqsim.errors import ScenarioError
from llmqsim.rng import stream
from llmqsim.workload.arrivals import arrival_ns
from llmqsim.workload.gaps import unit_gaps

ROWS = 40_000
KS_BOUND = np.sqrt(-np.log(1e-5 / 2) / 2 / ROWS)
GAMMA = [{"cv": 2.0}, {"cv": 3.0}, {"cv": 0.5}, {"burstiness": 0.25}, {"burstiness": 4.0}]


def draw(arrivals: dict, requests: int | None = ROWS, duration: float | None = None, seed: int = 1) -> np.ndarray:
    return arrival_ns(arrivals, requests, duration, stream(seed, 0, "arrivals"))


def gaps(arrivals: dict, **how) -> np.ndarray:
    return np.diff(draw(arrivals, **how), prepend=0) / 1e9


def shape_of(spread: dict) -> float:
    return spread.get("burstiness") or 1 / spread["cv"] ** 2


def test_poisson_has_the_rate_the_cv_the_law_and_no_memory():
    g = gaps({"process": "poisson", "rate": 8.0})
    assert g.mean() == pytest.approx(1 / 8, rel=5 / np.sqrt(ROWS))
    # The sample CV of exponential gaps has the standard error 1/sqrt(n) (delta method, fourth moment 9).
    assert g.std() / g.mean() == pytest.approx(1, abs=5 / np.sqrt(ROWS))
    assert stats.kstest(g, stats.expon(scale=1 / 8).cdf).statistic < KS_BOUND
    assert abs(np.corrcoef(g[1:], g[:-1])[0, 1]) < 5 / np.sqrt(ROWS)


@pytest.mark.parametrize("spread", GAMMA, ids=str)
def test_gamma_has_the_rate_the_cv_and_the_law(spread):
    shape = shape_of(spread)
    g = gaps({"process": "gamma", "rate": 3.0, **spread})
    assert g.mean() == pytest.approx(1 / 3, rel=5 / np.sqrt(shape * ROWS))
    # Delta method for the sample CV of gamma gaps: its relative error has the variance (1 + 1/shape) / 2n.
    assert g.std() / g.mean() == pytest.approx(shape**-0.5, rel=5 * np.sqrt((1 + 1 / shape) / 2 / ROWS))
    # A CV of 3 puts 8 % of the gaps below the clock's nanosecond: compare the CDFs from a microsecond up.
    law = stats.gamma(shape, scale=1 / 3 / shape)
    above = np.sort(g)[np.count_nonzero(g < 1e-6) :]
    steps = np.arange(ROWS - len(above), ROWS + 1) / ROWS
    assert max(np.abs(law.cdf(above) - steps[1:]).max(), np.abs(law.cdf(above) - steps[:-1]).max()) < KS_BOUND


@pytest.mark.parametrize("shape", [1 / 100, 1 / 9, 0.25, 1.0, 4.0, 100.0])
def test_gamma_gaps_invert_the_cdf_at_every_scale(shape):
    u = np.concatenate([np.logspace(-15, -0.01, 200), 1 - np.logspace(-12, -2, 50)])
    x = unit_gaps("gamma", shape)(u) * shape
    seen = x > 1e-290
    assert gammainc(shape, x[seen]) == pytest.approx(u[seen], rel=1e-8)
    assert np.all(np.diff(unit_gaps("gamma", shape)(np.sort(u))) >= 0)


def test_gamma_of_cv_one_is_poisson_and_burstiness_is_its_inverse_square():
    poisson = draw({"process": "poisson", "rate": 2.0}, 5000)
    assert np.abs(draw({"process": "gamma", "rate": 2.0, "cv": 1.0}, 5000) - poisson).max() <= 1
    four = {"process": "gamma", "rate": 2.0}
    assert np.array_equal(draw({**four, "cv": 2.0}, 5000), draw({**four, "burstiness": 0.25}, 5000))


def test_constant_is_exact_and_starts_after_one_gap():
    assert draw({"process": "constant", "rate": 4.0}, 3).tolist() == [250_000_000, 500_000_000, 750_000_000]
    late = draw({"process": "constant", "rate": 3.0}, 300_000)
    assert late[-1] == 100_000 * 10**9


def test_burst_is_at_zero():
    assert draw({"process": "burst"}, 5).tolist() == [0] * 5


@pytest.mark.parametrize("arrivals", [{"process": "poisson"}, {"process": "gamma", "cv": 3.0}, {"process": "constant"}])
def test_a_longer_run_extends_a_shorter_one(arrivals):
    long = draw({**arrivals, "rate": 5.0}, 4000)
    assert np.array_equal(draw({**arrivals, "rate": 5.0}, 100), long[:100])
    for duration in (1.0, 100.0, 400.0):
        timed = draw({**arrivals, "rate": 5.0}, None, duration)
        assert np.array_equal(timed, long[long < duration * 1e9])
    assert np.array_equal(draw({**arrivals, "rate": 5.0}, 70, 400.0), long[:70])


def test_a_change_of_rate_stretches_the_same_pattern():
    slow, fast = draw({"process": "poisson", "rate": 2.0}), draw({"process": "poisson", "rate": 7.0})
    assert np.abs(slow * (2 / 7) - fast).max() <= 1


def test_the_end_of_the_duration_is_excluded():
    assert len(draw({"process": "constant", "rate": 10.0}, None, 1.0)) == 9


def test_counts_in_a_duration_are_poisson():
    counts = [len(draw({"process": "poisson", "rate": 20.0}, None, 5.0, seed)) for seed in range(400)]
    assert np.mean(counts) == pytest.approx(100, abs=5 * np.sqrt(100 / 400))
    assert np.var(counts) == pytest.approx(100, rel=5 * np.sqrt(2 / 400))


def test_streams_of_replications_and_of_names_are_unrelated():
    u = [stream(0, r, n).random(ROWS) for r in (0, 1) for n in ("arrivals", "prompt_lengths", "output_lengths")]
    correlations = np.corrcoef(u)[np.triu_indices(6, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(ROWS)


@pytest.mark.parametrize(
    ("arrivals", "requests", "duration", "said"),
    [
        ({"process": "poison", "rate": 1.0}, 10, None, "did you mean 'poisson'"),
        ({"process": "poisson"}, 10, None, "workload.arrivals.rate"),
        ({"process": "poisson", "rate": -1.0}, 10, None, "workload.arrivals.rate"),
        ({"process": "poisson", "rate": float("nan")}, 10, None, "workload.arrivals.rate"),
        ({"process": "poisson", "rate": 1.0}, None, None, "`requests`, `duration` or both"),
        ({"process": "burst"}, None, 10.0, "workload.requests"),
        ({"process": "gamma", "rate": 1.0}, 10, None, "one of cv and burstiness"),
        ({"process": "gamma", "rate": 1.0, "cv": 2.0, "burstiness": 2.0}, 10, None, "one of cv and burstiness"),
        ({"process": "gamma", "rate": 1.0, "cv": 0.0}, 10, None, "above 0"),
        ({"process": "poisson", "rate": 1e9}, None, 1e6, "requests need .* of memory"),
        ({"process": "constant", "rate": 1e-12}, 10, None, "the clock ends"),
    ],
)
def test_what_makes_no_sense_is_refused_by_key(arrivals, requests, duration, said):
    with pytest.raises(ScenarioError, match=said):
        draw(arrivals, requests, duration)
