"""Queue disciplines against their closed forms: SJF, SRPT (Schrage and Miller), priorities (Cobham), processor sharing.

Three ways to make a queue of a scenario. Prompts as services: one slot, one output token, a step in proportion to the
prompt (test_queues.py). Answers as services: one slot, steps of equal time; who is preempted computes its tokens again
within the step that makes the next one, so that nothing is lost (preemptive resume). Sharing: many slots and a step in
proportion to its tokens. The last two know time in steps: a request waits for the step under way, and a service is a
whole number of them. So the theory lies in an interval that is widened by a step or two, small beside what it tells apart.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from llmqsim import from_mapping, simulate
from tests.theory.test_queues import SERVICE_TOKENS, expect, interval, single_server

REPLICATIONS = 12


def prompts(rate: float, prompt, ordering, requests: int = 2500, **workload):
    scenario = single_server(rate, prompt, requests).to_dict()
    scenario["engine"]["ordering"] = ordering
    scenario["workload"] |= workload
    return from_mapping(scenario)


def answers(rate: float, output, ordering, step: float = 0.05, requests: int = 1500, **more):
    """Mean service 1 s: answers of 1 / step tokens on average."""
    workload = {
        "requests": requests,
        "arrivals": {"process": "poisson", "rate": rate},
        "lengths": {"prompt": 1, "output": output},
        "predictor": "oracle",
    }
    return from_mapping(
        {
            "workload": {**workload, **more},
            "cost": {"model": "constant", "step": step},
            "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 1_000_000, "ordering": ordering},
        }
    )


def means(scenario, figure: str, replications: int = REPLICATIONS, of_class: str | None = None) -> list[float]:
    found = []
    for replication in range(replications):
        summary = simulate(scenario, replication=replication).summary()
        found.append((summary if of_class is None else summary["by_class"][of_class])[figure]["mean"])
    return found


def load_below(rate: float, x: float) -> float:
    """Load of the services up to x, exponential with mean 1."""
    return rate * (1 - (1 + x) * np.exp(-x))


# Not preemptive ---------------------------------------------------------------------------------------------------


def test_m_g_1_shortest_job_first():
    """Phipps 1956: W = (rate E[S²] / 2) E[1 / (1 - load of shorter ones)²]; at load 0.7 about 60 % of first come first served."""
    rate = 0.7
    theory = rate * quad(lambda x: np.exp(-x) / (1 - load_below(rate, x)) ** 2, 0, 60)[0]
    assert theory < 0.65 * rate / (1 - rate)
    waits = means(prompts(rate, {"exponential": {"mean": SERVICE_TOKENS}}, {"policy": "sjf", "by": "prompt"}), "wait_s")
    expect(theory, waits, 0.2)


@pytest.mark.parametrize("ordering", ["lifo", "random"])
def test_the_mean_wait_does_not_depend_on_an_order_that_is_blind_to_service(ordering):
    waits = means(prompts(0.6, {"exponential": {"mean": SERVICE_TOKENS}}, ordering), "wait_s")
    expect(0.6 / 0.4, waits, 0.2)


def test_priority_classes_without_preemption():
    """Cobham 1954: W_k = W0 / ((1 - s_(k-1)) (1 - s_k)), W0 = rate E[S²] / 2, s_k the load of classes 1 to k."""
    rate = 0.7
    classes = {"urgent": {"share": 0.4, "priority": 0}, "patient": {"share": 0.6, "priority": 1}}
    scenario = prompts(rate, {"exponential": {"mean": SERVICE_TOKENS}}, "priority", classes=classes)
    results = [simulate(scenario, replication=r).summary()["by_class"] for r in range(REPLICATIONS)]
    urgent, whole = 0.4 * rate, rate
    expect(rate / (1 - urgent), [r["urgent"]["wait_s"]["mean"] for r in results], 0.15)
    expect(rate / ((1 - urgent) * (1 - whole)), [r["patient"]["wait_s"]["mean"] for r in results], 0.3)


# Preemptive ----------------------------------------------------------------------------------------------------------


def within(theory: float, values: list[float], width: float, steps: float) -> None:
    """The interval, widened downwards by `steps` seconds, holds the theory."""
    low, high = interval(values)
    assert (high - low) / 2 <= width * theory, f"interval [{low:.4g}, {high:.4g}] too wide to judge {theory:.4g}"
    assert low - steps <= theory <= high, f"theory {theory:.4g} outside [{low - steps:.4g}, {high:.4g}]"


@pytest.mark.long
def test_priority_classes_with_preemption():
    """White and Christie 1958, preemptive resume: T_k = E[S] / (1 - s_(k-1)) + W_k, W_k from the classes 1 to k alone."""
    rate, step = 0.6, 0.05
    classes = {"urgent": {"share": 0.4, "priority": 0}, "patient": {"share": 0.6, "priority": 1}}
    scenario = answers(
        rate, {"exponential": {"mean": 1 / step}}, {"policy": "priority", "preempt": True}, step, classes=classes
    )
    results = [simulate(scenario, replication=r).summary()["by_class"] for r in range(REPLICATIONS)]
    urgent, whole = 0.4 * rate, rate
    within(1 / (1 - urgent), [r["urgent"]["e2e_s"]["mean"] for r in results], 0.15, 2 * step)
    patient = 1 / (1 - urgent) + rate / ((1 - urgent) * (1 - whole))
    within(patient, [r["patient"]["e2e_s"]["mean"] for r in results], 0.3, 4 * step)


def srpt(rate: float) -> float:
    """Schrage and Miller 1966, mean time in M/M/1 with mean service 1 under SRPT."""

    def waits(x: float) -> float:
        shorter = 2 - (x * x + 2 * x + 2) * np.exp(-x)
        return rate * (shorter + x * x * np.exp(-x)) / (2 * (1 - load_below(rate, x)) ** 2)

    waiting = quad(lambda x: np.exp(-x) * waits(x), 0, 60)[0]
    residence = quad(lambda x: np.exp(-x) / (1 - load_below(rate, x)), 0, 60)[0]  # parts: F-bar of the inner integral
    return waiting + residence


@pytest.mark.long
def test_shortest_remaining_processing_time():
    rate, step = 0.7, 0.05
    theory = srpt(rate)
    assert theory < 0.65 / (1 - rate)
    scenario = answers(rate, {"exponential": {"mean": 1 / step}}, "srpt", step)
    within(theory, means(scenario, "e2e_s"), 0.15, 2 * step)


# Processor sharing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", [{"exponential": {"mean": 200}}, {"lognormal": {"mean": 200, "cv": 1.5}}])
def test_continuous_batching_that_pays_by_the_token_is_processor_sharing(output):
    """M/G/1-PS: T = E[S] / (1 - load), whatever the distribution of services. SRPT is below it, FCFS far above at CV 1.5."""
    rate, step = 0.7, 1 / 200
    scenario = from_mapping(
        {
            "workload": {
                "requests": 20_000,
                "arrivals": {"process": "poisson", "rate": rate},
                "lengths": {"prompt": 1, "output": output},
            },
            "cost": {"model": "affine", "per_token": step},
            "engine": {"max_num_seqs": 4096, "max_num_batched_tokens": 100_000},
        }
    )
    theory = 1 / (1 - rate)
    times = means(scenario, "e2e_s", 16)
    within(theory, times, 0.15, 4 * step / (1 - rate))
    assert srpt(rate) < min(times)
