"""Closed forms of queueing theory, each inside the simulated interval: over independent replications, never one digit.

How a queue becomes a scenario: one slot, one output token, and a step whose time is proportional to the prompt make a
single server whose service time is the prompt's length; `wait_s` (arrival to first scheduled) is the wait in the queue.
Intervals are at 99.9 %, and must be narrow enough to tell the theory from its neighbours.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from llmqsim import from_mapping, simulate

SERVICE_TOKENS = 10_000  # mean prompt; so fine that rounding to whole tokens does not show


def single_server(rate: float, prompt, requests: int = 4000, arrivals: dict | None = None):
    """M/G/1 (or GI/G/1): mean service 1 s, one server, first come first served."""
    return from_mapping(
        {
            "workload": {
                "requests": requests,
                "arrivals": arrivals or {"process": "poisson", "rate": rate},
                "lengths": {"prompt": prompt, "output": 1},
            },
            "cost": {"model": "affine", "per_prefill_token": 1.0 / SERVICE_TOKENS},
            "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 100_000_000},
        }
    )


def interval(values: list[float], confidence: float = 0.999) -> tuple[float, float]:
    """t-interval of the mean of independent replications."""
    half = stats.t.ppf((1 + confidence) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return np.mean(values) - half, np.mean(values) + half


def expect(theory: float, values: list[float], width: float) -> None:
    """The theory lies inside, and the interval is at most `width` of it wide on either side."""
    low, high = interval(values)
    assert (high - low) / 2 <= width * theory, f"interval [{low:.4g}, {high:.4g}] too wide to judge {theory:.4g}"
    assert low <= theory <= high, f"theory {theory:.4g} outside [{low:.4g}, {high:.4g}]"


def mean_waits(scenario, replications: int) -> list[float]:
    return [simulate(scenario, replication=r).summary()["wait_s"]["mean"] for r in range(replications)]


# Starting empty shortens the mean wait of n customers by about 1/n of a term that grows with 1/(1 - load)^3: at these
# loads and lengths well under the width of the intervals.


@pytest.mark.parametrize("load", [0.5, 0.7])
def test_m_d_1(load):
    waits = mean_waits(single_server(load, SERVICE_TOKENS), 12)
    expect(load / (2 * (1 - load)), waits, 0.12)


@pytest.mark.parametrize("load", [0.5, 0.7])
def test_m_m_1(load):
    waits = mean_waits(single_server(load, {"exponential": {"mean": SERVICE_TOKENS}}), 16)
    expect(load / (1 - load), waits, 0.2)


@pytest.mark.parametrize(("load", "cv"), [(0.5, 0.5), (0.6, 1.5)])
def test_m_g_1_pollaczek_khinchine(load, cv):
    waits = mean_waits(single_server(load, {"lognormal": {"mean": SERVICE_TOKENS, "cv": cv}}, 6000), 12)
    expect(load * (1 + cv**2) / (2 * (1 - load)), waits, 0.25)


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival finds all servers of M/M/c busy. Source: any queueing text, e.g. Kleinrock 3.40."""
    blocking = 1.0
    for k in range(1, servers + 1):
        blocking = offered * blocking / (k + offered * blocking)
    return servers * blocking / (servers - offered * (1 - blocking))


def test_m_m_c_as_slots_of_one_replica():
    """Four slots, answers of geometric length, a step of 1/50 of the mean service: M/M/4 up to that step."""
    servers, load, step = 4, 0.75, 0.02
    scenario = from_mapping(
        {
            "workload": {
                "requests": 3000,
                "arrivals": {"process": "poisson", "rate": servers * load},
                "lengths": {"prompt": 1, "output": {"exponential": {"mean": 1 / step}}},
            },
            "cost": {"model": "constant", "step": step},
            "engine": {"max_num_seqs": servers, "max_num_batched_tokens": 1024},
        }
    )
    theory = erlang_c(servers, servers * load) / (servers * (1 - load))
    waits = mean_waits(scenario, 16)
    low, high = interval(waits)
    assert (high - low) / 2 <= 0.3 * theory
    # Everybody waits for the step under way to end: between none and one step more than M/M/4.
    assert low <= theory + step and theory <= high


@pytest.mark.parametrize(("cv", "theory"), [(1.0, 4.0), (2.0, 10.96), (3.0, 22.56)])
def test_s11_gamma_arrivals_at_one_exponential_server(cv, theory):
    """User case S11; exact values of GI/M/1 at load 0.8: the wait is sigma / (1 - sigma), sigma = A*(1 - sigma)."""
    shape = 1 / cv**2
    sigma = 0.5
    for _ in range(500):
        sigma = (1 + (1 - sigma) / (0.8 * shape)) ** -shape
    assert sigma / (1 - sigma) == pytest.approx(theory, abs=0.01)
    arrivals = {"process": "gamma", "rate": 0.8, "burstiness": shape}
    scenario = single_server(0.8, {"exponential": {"mean": SERVICE_TOKENS}}, 20_000, arrivals)
    expect(theory, mean_waits(scenario, 10), 0.25)


def test_littles_law_holds_for_the_reported_figures():
    """Mean number waiting = arrivals per second x mean wait, exactly, over the same window."""
    result = simulate(single_server(0.7, {"exponential": {"mean": SERVICE_TOKENS}}, 2000))
    waiting_s = sum(u.waiting_ns for u in result.usage) / 1e9
    summary = result.summary()
    assert waiting_s == pytest.approx(summary["wait_s"]["mean"] * summary["requests"]["arrived"], rel=1e-12)


@pytest.mark.parametrize("load", [0.5, 1.5])
def test_batch_service_without_limit(load):
    """M/D/1 with batches of whoever waits: an arrival that finds the server busy waits for the rest of one service.

    Arrivals go on joining the next batch, so any load is stable. A busy period has exp(load) services on average (each
    is followed by another if anybody came during it); by PASTA an arrival finds the server busy with probability
    load x exp(load) / (1 + load x exp(load)), and then waits half a service on average.
    """
    scenario = from_mapping(
        {
            "workload": {
                "requests": 4000,
                "arrivals": {"process": "poisson", "rate": load},
                "lengths": {"prompt": 10, "output": 1},
            },
            "cost": {"model": "constant", "step": 1.0},
            "engine": {
                "batching": "static",
                "max_num_seqs": 4096,
                "max_num_batched_tokens": 100_000,
                "enable_chunked_prefill": False,
            },
        }
    )
    busy = load * np.exp(load) / (1 + load * np.exp(load))
    expect(busy / 2, mean_waits(scenario, 10), 0.05)
