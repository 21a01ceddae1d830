"""Predictors: their stated error is the realised one, draws are keyed by request, and what does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import from_mapping, registry, simulate
from llmqsim.engine.sequence import Sequence
from llmqsim.errors import ScenarioError, UserError
from llmqsim.requests import RequestTable
from llmqsim.rng import stream
from llmqsim.scenario.build import build_servers, build_workload
from llmqsim.workload.predictors import Lengths

KNOWN = registry.names("predictor")


def scenario(predictor, requests: int = 4000, **more) -> dict:
    return {
        "workload": {
            "requests": requests,
            "arrivals": {"process": "poisson", "rate": 50},
            "lengths": {
                "prompt": {"lognormal": {"mean": 500, "cv": 1}},
                "output": {"lognormal": {"mean": 200, "cv": 1}},
            },
            "predictor": predictor,
        },
        "cost": {"model": "constant", "step": "1 ms"},
        **more,
    }


def predicted(predictor, requests: int = 4000, seed: int = 0) -> RequestTable:
    made = from_mapping(scenario(predictor, requests))
    return build_workload(made, build_servers(made), seed, 0).table


def realised(predictor, requests: int = 4000) -> dict:
    return simulate(from_mapping(scenario(predictor, requests))).summary()["prediction"]


@pytest.mark.parametrize("tau", [1.0, 0.6, 0.3, 0.0, -1.0])
def test_a_ranker_has_the_kendall_tau_that_it_is_given(tau):
    error = realised({"policy": "ranker", "tau": tau})
    assert error["kendall_tau"] == pytest.approx(tau, abs=0.03)  # standard error at 0: 0.0105
    assert error["bias"] == pytest.approx(1.0)  # lengths as a whole are right


def test_the_oracle_is_right():
    assert realised("oracle") == {"n": 4000, "kendall_tau": 1.0, "mae_tokens": 0.0, "bias": 1.0, "coverage": 1.0}


def test_lognormal_noise_has_its_sigma_and_bias():
    table = predicted({"policy": "lognormal", "sigma": 0.4, "bias": 1.5})
    noise = np.log(table.predicted_tokens / table.output_tokens)
    assert np.median(noise) == pytest.approx(np.log(1.5), abs=0.03)
    assert np.std(noise[table.output_tokens > 50]) == pytest.approx(0.4, abs=0.02)


def test_a_bucket_classifier_has_its_confusion_matrix():
    confusion = [[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.0, 0.5, 0.5]]
    table = predicted({"policy": "bucket", "edges": [100, 300], "confusion": confusion})
    true = np.searchsorted([100, 300], table.output_tokens, side="right")
    told = np.searchsorted([100, 300], table.predicted_tokens, side="right")
    counted = np.array([[np.mean(told[true == row] == column) for column in range(3)] for row in range(3)])
    assert np.abs(counted - confusion).max() < 0.05
    assert len(np.unique(table.predicted_tokens)) == 3


def test_a_quantile_covers_what_it_says_and_is_conservative():
    error = realised({"policy": "quantile", "q": 0.9})
    assert error["coverage"] == pytest.approx(0.9, abs=0.01) and error["bias"] > 1.5


def test_the_class_mean_tells_classes_apart_and_nothing_else():
    classes = {
        "chat": {"share": 0.5, "lengths": {"prompt": 100, "output": {"uniform": [10, 30]}}},
        "batch": {"share": 0.5, "lengths": {"prompt": 100, "output": {"uniform": [300, 500]}}},
    }
    given = scenario("class_mean")
    given["workload"] |= {"classes": classes, "lengths": None}
    made = from_mapping(given)
    table = build_workload(made, build_servers(made), 0, 0).table
    told = [np.unique(table.predicted_tokens[table.class_id == c]) for c in (0, 1)]
    assert [len(values) for values in told] == [1, 1]
    assert told[0][0] == pytest.approx(20, abs=1) and told[1][0] == pytest.approx(400, abs=5)


def test_a_regression_learns_from_a_trace(tmp_path):
    """Answers twice as long as prompts in the trace: so they are predicted, whatever the run's own requests do."""
    rows = [f"{i},{p},{2 * p}" for i, p in enumerate(range(10, 400))]
    (tmp_path / "past.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    given = scenario({"policy": "regression", "trace": "past.csv"})
    given["workload"]["lengths"] = {"prompt": {"uniform": [20, 300]}, "output": 7}
    made = from_mapping(given, folder=str(tmp_path))
    table = build_workload(made, build_servers(made), 0, 0).table
    assert np.abs(table.predicted_tokens - 2 * table.prompt_tokens).max() <= 1


def test_drift_grows_to_what_is_given():
    table = predicted({"policy": "oracle", "drift": 0.5})
    ratio = table.predicted_tokens / table.output_tokens
    assert table.predicted_tokens[0] == table.output_tokens[0]
    assert ratio[-500:].mean() == pytest.approx(1.47, abs=0.02)


def test_a_request_that_outlives_its_prediction_is_expected_to_go_on():
    table = RequestTable.from_columns(
        arrival_ns=np.array([0]),
        prompt_tokens=np.array([5]),
        output_tokens=np.array([100]),
        max_tokens=np.array([90 + 10]),
        predicted_tokens=np.array([10]),
    )
    plain = Sequence(table, 0)
    plain.generated_tokens = 15
    assert (plain.expected_tokens, plain.remaining_tokens) == (10, 1)
    table.re_estimate = 2.0
    corrected = Sequence(table, 0)
    assert corrected.expected_tokens == 10
    corrected.generated_tokens = 10
    assert (corrected.expected_tokens, corrected.remaining_tokens) == (21, 11)
    corrected.generated_tokens = 80
    assert corrected.expected_tokens == 87 and corrected.predicted_tokens == 10
    corrected.generated_tokens = 99
    assert (corrected.expected_tokens, corrected.remaining_tokens) == (100, 1)


@pytest.mark.parametrize("name", KNOWN)
def test_draws_are_keyed_by_request_and_lengths_are_whole(name):
    predictor = registry.make("predictor", name)
    random = np.random.default_rng(3)
    prompt, output = random.integers(1, 900, 300), random.integers(1, 900, 300)
    rows = Lengths(prompt, output, np.zeros(300, dtype=np.int64))
    told = predictor.drifted(predictor.predict(rows, None, stream(1, 0, "predictor")))
    again = predictor.drifted(predictor.predict(rows, None, stream(1, 0, "predictor")))
    assert told.dtype == np.int64 and told.min() >= 1 and (told == again).all()


def test_the_workload_is_the_same_with_and_without_a_predictor():
    one, other = predicted("lognormal"), predicted(None)
    for column in ("arrival_ns", "prompt_tokens", "output_tokens", "max_tokens"):
        assert (getattr(one, column) == getattr(other, column)).all()
    assert (other.predicted_tokens == -1).all()
    assert simulate(from_mapping(scenario(None, 100))).summary()["prediction"] is None


@pytest.mark.parametrize(
    ("predictor", "told"),
    [
        ({"policy": "ranker", "tau": 1.2}, "tau must be a number at least -1 and at most 1 (got 1.2)"),
        ({"policy": "ranker", "tau": "high"}, "tau must be a number"),
        ({"policy": "rankr"}, "did you mean 'ranker'"),
        ({"policy": "lognormal", "sigm": 1}, "did you mean 'sigma'"),
        ({"policy": "oracle", "online": 0.5}, "online must be above 1"),
        ({"policy": "bucket", "edges": [300, 100]}, "edges must be rising"),
        ({"policy": "bucket", "edges": 300}, "edges must be a list"),
        ({"policy": "bucket", "buckets": 2, "confusion": [[1, 0], [0.5, 0.6]]}, "confusion must have 2 rows"),
        ({"policy": "quantile", "q": 0}, "q must be a number above 0 and at most 1"),
        ({"policy": "regression", "trace": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would_be_right(predictor, told):
    with pytest.raises(UserError) as caught:
        predicted(predictor, 10)
    assert told in str(caught.value)
    if isinstance(caught.value, ScenarioError):
        assert "workload.predictor" in str(caught.value)
