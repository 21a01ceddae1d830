"""Length distributions against their laws. Bounds are five standard errors, or Kolmogorov's at a risk of 1e-5."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from llmqsim.errors import ScenarioError
from llmqsim.workload.lengths import MAX_TOKENS, Clipped, parse

ROWS = 50_000
KS_BOUND = np.sqrt(-np.log(1e-5 / 2) / 2 / ROWS)
U = np.random.default_rng(3).random(ROWS)
SPECS = [
    7,
    {"constant": 7},
    {"uniform": [3, 9]},
    {"lognormal": {"mean": 500, "cv": 1.5}},
    {"exponential": {"mean": 20}},
    {"exponential": {"mean": 1}},
    {"lognormal": {"mean": 500, "cv": 1.5}, "min": 50, "max": 900},
]


def drawn(spec) -> np.ndarray:
    return parse(spec, "workload.lengths.prompt").quantile(U)


def discrete_ks(values: np.ndarray, cdf) -> float:
    tokens, counts = np.unique(values, return_counts=True)
    return float(np.abs(np.cumsum(counts) / len(values) - cdf(tokens)).max())


@pytest.mark.parametrize("mean", [1.5, 4, 20, 1000])
def test_exponential_is_geometric_with_the_exact_mean(mean):
    x = drawn({"exponential": {"mean": mean}})
    sd = np.sqrt(mean * (mean - 1))
    assert x.mean() == pytest.approx(mean, abs=5 * sd / np.sqrt(ROWS))
    assert discrete_ks(x, lambda k: 1 - (1 - 1 / mean) ** k) < KS_BOUND


@pytest.mark.parametrize(("mean", "cv"), [(200, 0.3), (1000, 1), (2000, 3)])
def test_lognormal_has_the_arithmetic_mean_and_the_law(mean, cv):
    x = drawn({"lognormal": {"mean": mean, "cv": cv}})
    assert x.mean() == pytest.approx(mean, rel=5 * cv / np.sqrt(ROWS))
    sigma = np.sqrt(np.log1p(cv**2))
    law = stats.lognorm(sigma, scale=mean * np.exp(-(sigma**2) / 2))
    assert discrete_ks(x, lambda k: law.cdf(k + 0.5)) < KS_BOUND
    # The sample CV of so heavy a tail converges slowly; the spread of the logarithm is the same parameter.
    assert np.log(x[x > 20]).std() == pytest.approx(sigma, rel=0.05)


def test_uniform_reaches_both_ends_evenly():
    x = drawn({"uniform": [3, 9]})
    values, counts = np.unique(x, return_counts=True)
    assert values.tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert stats.chisquare(counts).pvalue > 1e-5


def test_constant_in_both_spellings():
    assert set(drawn(7)) == set(drawn({"constant": 7})) == {7}


def test_bounds_collect_what_lies_beyond_them():
    law = parse({"lognormal": {"mean": 500, "cv": 1.5}, "min": 50, "max": 900}, "k")
    free = parse({"lognormal": {"mean": 500, "cv": 1.5}}, "k").quantile(U)
    assert isinstance(law, Clipped)
    assert np.array_equal(law.quantile(U), np.clip(free, 50, 900))
    assert np.array_equal(drawn({"lognormal": {"mean": 500, "cv": 1.5, "max": 900, "min": 50}}), law.quantile(U))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_quantiles_grow_and_stay_whole_and_finite_at_the_ends(spec):
    u = np.array([0.0, 1e-300, 0.1, 0.5, 0.9, 1 - 2.0**-53])
    x = parse(spec, "k").quantile(u)
    assert x.dtype == np.int64
    assert np.all(np.diff(x) >= 0) and x[0] >= 1 and x[-1] <= MAX_TOKENS


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (0, "whole number of tokens|at least 1"),
        (2.5, "whole number of tokens"),
        (True, "at least 1"),
        ("abc", "at least 1"),
        (float("nan"), "at least 1"),
        (3e9, "whole number of tokens"),
        ({"lognorm": {"mean": 3, "cv": 1}}, "did you mean 'lognormal'"),
        ({}, "one kind of distribution"),
        ({"uniform": [9, 3]}, "must not exceed"),
        ({"uniform": [1, 2, 3]}, "smallest, largest"),
        ({"lognormal": {"mean": 500}}, "lognormal.cv"),
        ({"exponential": {"mean": 0.5}}, "exponential.mean"),
        ({"exponential": 5}, "mapping of its parameters"),
        ({"exponential": {"mean": 5}, "min": 9, "max": 3}, "min must not exceed max"),
        ({"constant": 5, "max": 3}, "neither min nor max"),
    ],
)
def test_what_makes_no_sense_is_refused_by_key(spec, said):
    with pytest.raises(ScenarioError, match=said) as error:
        parse(spec, "workload.lengths.prompt")
    assert error.value.faults[0].startswith("workload.lengths.prompt")
