"""A target just under what any number of replicas reaches: the bound is what requests alone attain, and the search stops."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import from_mapping, simulate
from llmqsim.planner.size import Effort, Search
from llmqsim.simulation import prepare

LENGTHS = {"prompt": {"lognormal": {"mean": 1000, "cv": 1.0}, "max": 20_000}, "output": 40}


def service(rate: float, limit_s: float, share: float = 0.95):
    """Steps that cost plain numbers; `share` of the requests shall have their first token within `limit_s`."""
    return from_mapping(
        {
            "workload": {"requests": 1000, "arrivals": {"process": "poisson", "rate": rate}, "lengths": LENGTHS},
            "cost": {"model": "affine", "base": 0.008, "per_prefill_token": 1e-4, "per_decode_request": 3e-4},
            "engine": {"max_num_seqs": 32, "max_num_batched_tokens": 2048},
            "routing": "least_outstanding",
            "slo": {"ttft": limit_s, "attainment": share},
        }
    )


def alone(limit_s: float) -> float:
    """The share of the same requests that are in time an hour apart."""
    ttft = simulate(service(1 / 3600, limit_s)).to_frame()["ttft_s"].to_numpy()
    return float((ttft <= limit_s).mean())


def test_the_bound_is_what_lone_requests_attain_and_the_named_limit_lifts_it():
    share = alone(0.3)
    found = Search(prepare(service(60, 0.3, round(share - 0.004, 4))), Effort()).bound
    assert found.share == pytest.approx(share, abs=0.003) and found.near and found.target == "ttft_s"
    assert alone(found.eased_s) == pytest.approx(found.asked + 0.02, abs=0.004)
    far = Search(prepare(service(60, 0.3, 0.8)), Effort()).bound
    assert not far.near


def test_a_target_at_its_bound_is_said_and_not_climbed_after():
    asked = round(alone(0.3) - 0.002, 4)
    search = Search(prepare(service(60, 0.3, asked)), Effort())
    means = search.bounds.replicas_by_means(60, None)
    told = search.answer()
    assert told.replicas is None and told.reason == "target_at_bound"
    assert max(search.seen) <= 4 * means
    assert "points of what any number of replicas reaches" in told.sentence and "--max-replicas" in told.sentence
    assert np.all(np.diff([share for _, share in sorted(search.climbed.items())]) > -0.01)
    eager = Search(prepare(service(60, 0.3, asked)), Effort(search=2, most_replicas=256, climbs=True)).bracket(256)
    assert eager.reason != "target_at_bound"
