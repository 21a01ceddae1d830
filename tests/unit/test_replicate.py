"""Replications until a share is known, or the budget is spent; and traffic that can't be replicated."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import from_mapping
from llmqsim.planner.replicate import FEWEST, alike, until_known
from llmqsim.simulation import prepare

QUEUE = {
    "workload": {
        "requests": 400,
        "arrivals": {"process": "poisson", "rate": 6},
        "lengths": {"prompt": {"exponential": {"mean": 1000}}, "output": 1},
    },
    "cost": {"model": "affine", "per_prefill_token": 1e-4},
    "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 1_000_000},
    "slo": {"e2e": 0.5, "attainment": 0.8},
}
"""M/M/1 with mean service 0.1 s at load 0.6: E2E is exponential with mean 0.25 s, so 1 - exp(-2) = 86.5 % are in time"""


def test_it_stops_when_the_share_is_known():
    found = until_known(prepare(from_mapping(QUEUE)), half_width=0.02)
    told = found.interval
    assert told.half <= 0.02 and FEWEST <= len(found.runs) < 100
    assert until_known(prepare(from_mapping(QUEUE)), half_width=0.04).interval.n <= told.n


def test_it_stops_at_its_budget():
    assert len(until_known(prepare(from_mapping(QUEUE)), half_width=1e-6, most=7).runs) == 7
    assert len(until_known(prepare(from_mapping(QUEUE)), half_width=1e-6, budget_s=0.0).runs) == 1


@pytest.mark.long
def test_looking_after_every_run_still_covers_the_truth():
    """60 searches on replications of their own: 1 - exp(-2), less what starting empty adds (0.3 points at 400 requests)."""
    prepared, truth = prepare(from_mapping(QUEUE)), 1 - np.exp(-2)
    held = []
    for search in range(60):
        told = until_known(prepared, half_width=0.03, first=1000 * search).interval
        held.append(told.low - 0.003 <= truth <= told.high + 0.003)
    assert np.mean(held) >= 0.85, np.mean(held)


def test_constant_traffic_is_alike_in_every_replication():
    constant = QUEUE["workload"] | {"arrivals": {"process": "constant", "rate": 6}, "lengths": {"prompt": 9, "output": 1}}
    assert alike(prepare(from_mapping(QUEUE | {"workload": constant})))
    assert not alike(prepare(from_mapping(QUEUE)))
