"""The verdict from attainment and utilisation, and what utilisation is over."""

from __future__ import annotations

import pytest

from llmqsim import load_text, simulate
from llmqsim.errors import UserError
from llmqsim.metrics.waiting import WORDS
from llmqsim.planner import utilisation
from llmqsim.planner.bounds import Bounds
from llmqsim.scenario.build import build_workload
from llmqsim.simulation import prepare

SERVED = """\
workload:
  requests: 400
  arrivals: {process: poisson, rate: 2 req/s}
  lengths: {prompt: 500, output: 100}
model: llama-3.1-8b
gpu: a100-sxm-80gb
slo: {ttft: 500 ms, tpot: 50 ms}
"""


def waits(**means: float) -> dict:
    return {name: {"mean_s": means.get(name, 0.0), "share": None} for name in WORDS}


@pytest.mark.parametrize(
    ("attainment", "used", "means", "problem", "cause"),
    [
        (0.95, 0.5, {"slots": 9.0}, "no_hardware", None),
        (0.96, 0.99, {}, "no_hardware", None),
        (0.94, 0.5, {"slots": 2.0, "step": 1.0}, "queue", "slots"),
        (0.5, 0.2, {"token_budget": 2.0, "kv": 1.0}, "queue", "token_budget"),
        (0.5, 0.2, {"router": 2.0, "kv": 1.0}, "queue", "router"),
        (0.5, 0.2, {"kv": 2.0, "slots": 1.0}, "memory", "kv"),
        (0.5, 0.2, {"preempted": 2.0}, "memory", "preempted"),
        (0.5, 0.2, {"step": 0.1, "slots": 0.01}, "steps", "step"),
        (0.5, 0.2, {}, "steps", None),
        (0.5, 0.51, {"kv": 2.0}, "both", "kv"),
        (0.5, 0.9, {"slots": 2.0}, "hardware", "slots"),
    ],
)
def test_the_rule(attainment, used, means, problem, cause):
    found = utilisation.diagnose(attainment, 0.95, used, waits(**means))
    assert (found.problem, found.cause) == (problem, cause)
    assert found.hardware == (problem == "hardware")
    assert f"{100 * used:.0f} % utilisation" in found.sentence
    assert cause in (None, "step") or problem == "hardware" or WORDS[cause] in found.sentence


def test_saturated_throughput_is_what_arithmetic_says():
    """Work and KV demand against supply (planner/bounds.py) knows nothing of a queue; 10 % is what its means leave out."""
    scenario = load_text(SERVED)
    prepared = prepare(scenario)
    bounds = Bounds(prepared.servers.deployment, build_workload(scenario, prepared.servers, 0, 0).table)
    assert utilisation.saturated_tokens_per_s(scenario) == pytest.approx(600 * bounds.capacity_per_s, rel=0.1)


def test_it_does_not_depend_on_the_limits_of_the_queue():
    plain = utilisation.saturated_tokens_per_s(load_text(SERVED))
    narrow = load_text(
        SERVED, sets=["engine.max_num_seqs=4", "engine.kv_cache_memory_bytes=2 GB", "engine.ordering=lifo"]
    )
    assert utilisation.saturated_tokens_per_s(narrow) == plain
    throttled = load_text(
        SERVED, sets={"admission": {"policy": "queue_cap", "most": 1}, "workload.clients.timeout": "5 s"}
    )
    assert utilisation.saturated_tokens_per_s(throttled) == plain


def test_a_light_load_is_told_as_its_share():
    """Twice the rate is twice the utilisation, as long as the server keeps up."""
    one, two = (
        utilisation.steady_tokens_per_s(
            simulate(load_text(SERVED, sets={"workload.arrivals": {"process": "constant", "rate": rate}}))
        )
        for rate in (1, 2)
    )
    assert one == pytest.approx(600, rel=0.02) and two == pytest.approx(1200, rel=0.02)


def test_pools_are_two_kinds_of_hardware_together():
    split = load_text(
        SERVED,
        sets={
            "pools": {"prefill": {}, "decode": {"engine": {"max_num_seqs": 4}}},
            "handoff": {"preset": "distserve", "link": "nvlink3"},
        },
    )
    wide = load_text(
        SERVED, sets={"pools": {"prefill": {}, "decode": {}}, "handoff": {"preset": "distserve", "link": "nvlink3"}}
    )
    assert utilisation.saturated_tokens_per_s(split) == utilisation.saturated_tokens_per_s(wide) > 0


def test_a_closed_loop_has_no_load_to_raise():
    loop = load_text(SERVED, sets={"workload.arrivals": {"process": "closed_loop", "clients": 4}})
    with pytest.raises(UserError, match="wait for answers"):
        utilisation.saturated_tokens_per_s(loop)
