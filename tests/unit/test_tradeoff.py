"""`tradeoff` judges both targets together, with an interval, as `run` and `gate` do."""

from __future__ import annotations

import json

import pytest

from llmqsim import from_mapping, simulate
from llmqsim.metrics.stats import wilson
from llmqsim.tradeoff import tradeoff

TWO_TARGETS = {
    "workload": {
        "requests": 3000,
        "arrivals": {"process": "poisson", "rate": 4},
        "lengths": {"prompt": {"lognormal": {"mean": 500, "cv": 1}}, "output": {"lognormal": {"mean": 50, "cv": 1}}},
    },
    "cost": {"model": "affine", "base": "8 ms", "per_prefill_token": "100 us", "per_decode_request": "0.5 ms"},
    "engine": {"max_num_seqs": 32},
}


@pytest.fixture(scope="module")
def limits() -> tuple[float, float]:
    """TTFT and TPOT that 96.5 % of the requests keep, each alone."""
    requests = simulate(from_mapping(TWO_TARGETS)).to_frame()
    return float(requests["ttft_s"].quantile(0.965)), float(requests["tpot_s"].quantile(0.965))


def test_two_targets_that_hold_one_by_one_need_not_hold_together(limits, tmp_path):
    """Each target is kept by 96.5 % (by its own quantile of the run); fewer keep both, counted here from the frame."""
    ttft, tpot = limits
    given = {**TWO_TARGETS, "slo": {"ttft": f"{ttft} s", "tpot": f"{tpot} s", "attainment": 0.95}}
    requests = simulate(from_mapping(given)).to_frame()
    both = int(((requests["ttft_s"] <= ttft) & ~(requests["tpot_s"] > tpot)).sum())
    path = tmp_path / "two.yaml"
    path.write_text(json.dumps(given))
    found = tradeoff(str(path), "engine.max_num_seqs", [32])
    (point,) = found.points
    assert all(share == pytest.approx(0.965, abs=0.003) for share in point.shares.values())
    assert point.joint.mean == both / 3000 < 0.95
    low, high = wilson(both, 3000)
    assert point.joint.low <= low and point.joint.high >= high
    assert found.meets == () and point.judged != "kept"
    told = simulate(from_mapping(given)).summary()
    assert told["attainment"] == point.joint.mean and told["slo"]["verdict"] == "not_met"


def test_a_value_that_keeps_both_is_shown_to(limits, tmp_path):
    path = tmp_path / "two.yaml"
    ttft, tpot = limits
    path.write_text(json.dumps({**TWO_TARGETS, "slo": {"ttft": f"{ttft} s", "tpot": f"{tpot} s", "attainment": 0.8}}))
    found = tradeoff(str(path), "engine.max_num_seqs", [1, 32])
    assert found.meets == (32,) and found.points[0].judged == "broken"
    assert found.points[1].joint.low > 0.8
