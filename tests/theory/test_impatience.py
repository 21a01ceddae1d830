"""Clients who give up: the share of M/M/1 whose server finishes what it has started, and overload told from impatience.

A client leaves when its answer is not there after T; a step that has begun goes on. Then the work found by an arrival
has the density p0 r exp(-(1 - r) x) up to T and p0 r exp(r T) exp(-x) beyond (mean service 1, load r), with p0 as it
adds up to 1: below T every arrival adds its service, above T none does (level crossing, as for finite dams). Late are
those who find more than T, and those whose own service takes them beyond: p0 (1 + r) exp(-(1 - r) T) of all.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from llmqsim import from_mapping, simulate
from tests.theory.test_queues import SERVICE_TOKENS, interval


def impatient(load: float, patience: float, requests: int = 3000):
    """M/M/1 with a mean service of 1 s, whose clients give up after `patience` seconds."""
    workload = {
        "requests": requests,
        "arrivals": {"process": "poisson", "rate": load},
        "lengths": {"prompt": {"exponential": {"mean": SERVICE_TOKENS}}, "output": 1},
        "clients": {"timeout": patience},
    }
    engine = {"max_num_seqs": 1, "max_num_batched_tokens": 100_000_000}
    cost = {"model": "affine", "per_prefill_token": 1.0 / SERVICE_TOKENS}
    return from_mapping({"workload": workload, "cost": cost, "engine": engine})


def late(load: float, patience: float) -> float:
    """The closed form above."""
    fall = math.exp(-(1 - load) * patience)
    empty = 1 / (1 + load * (1 - fall) / (1 - load) + load * fall)
    return empty * (1 + load) * fall


@pytest.mark.parametrize(
    ("load", "patience", "verdict"),
    [(0.5, 2, "stable"), (0.8, 2, "stable"), (0.8, 6, "stable"), (1.3, 2, "overloaded"), (1.3, 6, "overloaded")],
)
def test_overload_is_more_than_was_room_for_whatever_share_gives_up(load, patience, verdict):
    """13 to 60 % give up here: below load 1 the server has room for all of them, above it not."""
    runs = [simulate(impatient(load, patience), replication=r).summary() for r in range(6)]
    low, high = interval([run["requests"]["timed_out"] / 3000 for run in runs])
    assert low <= late(load, patience) <= high and high - low < 0.16
    assert [run["stability"]["verdict"] for run in runs].count(verdict) >= 5
    assert all("timed out" in run["stability"]["evidence"] for run in runs)


def test_who_is_late_alone_gives_up_whatever_the_load():
    """Seven in a hundred answers are too long for their clients: of requests an hour apart the same ones give up."""
    base = impatient(0.4, 1.0)
    mapping = base.to_dict() | {"cost": {"model": "affine", "base": 0.01, "per_prefill_token": 1e-6}}
    mapping["engine"] = {"max_num_seqs": 64, "max_num_batched_tokens": 8192}
    lengths = {"prompt": 100, "output": {"lognormal": {"mean": 100, "cv": 1.0}, "max": 4000}}
    mapping["workload"] = {"requests": 1000, "lengths": lengths, "clients": {"timeout": 2.4}}
    told = {}
    for name, rate in (("busy", 20.0), ("alone", 1 / 3600)):
        arrivals = {"process": "poisson", "rate": rate}
        told[name] = simulate(from_mapping({**mapping, "workload": {**mapping["workload"], "arrivals": arrivals}}))
    gave_up = {name: one.table.gave_up_ns >= 0 for name, one in told.items()}
    assert 0.05 < gave_up["alone"].mean() < 0.1
    assert np.array_equal(told["alone"].late_alone, gave_up["alone"])
    assert np.array_equal(told["busy"].late_alone, gave_up["alone"]) and gave_up["busy"].sum() >= gave_up["alone"].sum()
    assert told["busy"].summary()["stability"]["verdict"] == "stable"
    assert "whatever the load" in told["busy"].summary()["stability"]["evidence"]
