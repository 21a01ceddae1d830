"""Closed forms where clients feed back or streams add up. Scenarios and intervals as in test_queues.py."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from llmqsim import from_mapping, simulate
from llmqsim.workload.gaps import unit_gaps, weibull_shape
from tests.theory.test_queues import SERVICE_TOKENS, expect


def repairman(clients: int, think_s: float) -> tuple[float, float]:
    """M/M/1//N (machine repairman, finite source), mean service 1: throughput and mean response.

    Source: any queueing text, e.g. Kleinrock 3.8: p(n) = p(0) N! / (N - n)! (1 / think)^n; X = 1 - p(0);
    response = N / X - think.
    """
    weights, weight = [1.0], 1.0
    for n in range(clients):
        weight *= (clients - n) / think_s
        weights.append(weight)
    throughput = 1 - weights[0] / sum(weights)
    return throughput, clients / throughput - think_s


def finite_source(clients: int, think_s: float, requests: int) -> dict:
    return {
        "workload": {
            "requests": requests,
            "arrivals": {
                "process": "closed_loop",
                "clients": clients,
                "think_time": {"exponential": {"mean": think_s}},
            },
            "lengths": {"prompt": {"exponential": {"mean": SERVICE_TOKENS}}, "output": 1},
        },
        "cost": {"model": "affine", "per_prefill_token": 1.0 / SERVICE_TOKENS},
        "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 100_000_000},
        "run": {"warmup": {"requests": 100}},
    }


@pytest.mark.parametrize(("clients", "think_s"), [(4, 8.0), (12, 6.0)])
def test_machine_repairman(clients, think_s):
    """One exponential server, N clients with exponential think times: from lightly loaded to saturated."""
    throughput, response = repairman(clients, think_s)
    summaries = [
        simulate(from_mapping(finite_source(clients, think_s, 2000)), replication=r).summary() for r in range(10)
    ]
    expect(response, [s["e2e_s"]["mean"] for s in summaries], 0.1)
    expect(throughput, [s["throughput"]["requests_per_s"] for s in summaries], 0.08)


def test_machine_repairman_does_not_see_the_law_of_thinking():
    """The product form is insensitive to the think time's law: a constant of the same mean gives the same response."""
    scenario = finite_source(6, 8.0, 2000)
    scenario["workload"]["arrivals"]["think_time"] = "8 s"
    responses = [simulate(from_mapping(scenario), replication=r).summary()["e2e_s"]["mean"] for r in range(10)]
    expect(repairman(6, 8.0)[1], responses, 0.1)


def test_a_loop_without_thinking_keeps_its_server_busy():
    """N clients that never think see N services each: response = N x mean service, throughput = 1 / mean service."""
    scenario = finite_source(5, 1.0, 1500)
    scenario["workload"]["arrivals"]["think_time"] = 0
    summaries = [simulate(from_mapping(scenario), replication=r).summary() for r in range(10)]
    expect(5.0, [s["e2e_s"]["mean"] for s in summaries], 0.08)
    assert all(s["utilisation"]["busy"] == pytest.approx(1, abs=1e-9) for s in summaries)


def test_superposed_poisson_classes_are_one_poisson_stream_of_mixed_service():
    """Pollaczek-Khinchine over the mixture: wait = rate E[S^2] / 2 (1 - load), the same for every class (PASTA)."""

    def stream(rate: float, prompt) -> dict:
        return {"arrivals": {"process": "poisson", "rate": rate}, "lengths": {"prompt": prompt, "output": 1}}

    scenario = from_mapping(
        {
            "workload": {
                "requests": 4000,
                "classes": {
                    "short": stream(0.5, SERVICE_TOKENS // 2),
                    "long": stream(0.2, {"exponential": {"mean": 2 * SERVICE_TOKENS}}),
                },
            },
            "cost": {"model": "affine", "per_prefill_token": 1.0 / SERVICE_TOKENS},
            "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 100_000_000},
        }
    )
    load, second_moment_rate = 0.5 * 0.5 + 0.2 * 2, 0.5 * 0.25 + 0.2 * 2 * 4
    theory = second_moment_rate / (2 * (1 - load))
    summaries = [simulate(scenario, replication=r).summary() for r in range(12)]
    expect(theory, [s["wait_s"]["mean"] for s in summaries], 0.2)
    for name in ("short", "long"):
        expect(theory, [s["by_class"][name]["wait_s"]["mean"] for s in summaries], 0.2)


def test_stations_are_an_m_d_1_queue_and_a_delay():
    scenario = from_mapping(
        {
            "workload": {
                "requests": 2000,
                "arrivals": {"process": "poisson", "rate": 0.6},
                "lengths": {"prompt": 10, "output": 5},
            },
            "cost": {"model": "stations", "prefill": "1 s", "decode": "7 s"},
        }
    )
    summaries = [simulate(scenario, replication=r).summary() for r in range(12)]
    expect(0.6 / (2 * 0.4), [s["wait_s"]["mean"] for s in summaries], 0.15)
    for s in summaries:
        assert s["e2e_s"]["mean"] == pytest.approx(s["wait_s"]["mean"] + 8, abs=1e-6)


def test_weibull_arrivals_at_one_exponential_server():
    """GI/M/1: the wait is sigma / (1 - sigma), sigma = E exp(-(1 - sigma) gap), here by numerical integration."""
    load, cv = 0.7, 2.0
    gaps = unit_gaps("weibull", weibull_shape(cv))
    sigma = 0.5
    for _ in range(200):
        sigma = quad(lambda u, s=sigma: np.exp(-(1 - s) * gaps(np.array([u]))[0] / load), 0, 1, limit=200)[0]
    scenario = from_mapping(
        {
            "workload": {
                "requests": 8000,
                "arrivals": {"process": "weibull", "rate": load, "cv": cv},
                "lengths": {"prompt": {"exponential": {"mean": SERVICE_TOKENS}}, "output": 1},
            },
            "cost": {"model": "affine", "per_prefill_token": 1.0 / SERVICE_TOKENS},
            "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 100_000_000},
        }
    )
    waits = [simulate(scenario, replication=r).summary()["wait_s"]["mean"] for r in range(10)]
    expect(sigma / (1 - sigma), waits, 0.25)
