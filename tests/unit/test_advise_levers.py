"""Levers and causes of advise: which apply to a scenario, what they set, and what is said of vLLM's options."""

from __future__ import annotations

import pytest

from llmqsim import from_mapping
from llmqsim.planner.advise import commands
from llmqsim.planner.advise.facts import HONEST_PREDICTOR
from llmqsim.planner.advise.levers import CAUSES, all_levers
from llmqsim.planner.advise.trial import Bench, Trial
from llmqsim.simulation import prepare

BASE = {
    "workload": {
        "requests": 40,
        "arrivals": {"process": "poisson", "rate": 4},
        "lengths": {"prompt": {"lognormal": {"mean": 800, "cv": 1}}, "output": 40},
    },
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm",
    "replicas": 4,
    "slo": {"ttft": "500 ms", "tpot": "50 ms"},
}
POOLS = {
    "pools": {"prefill": {"replicas": 3}, "decode": {"replicas": 1, "engine": {"max_num_seqs": 64}}},
    "handoff": {"link": "rdma-400g"},
}


def levers(**changes) -> dict[str, list]:
    found: dict[str, list] = {}
    scenario = {key: value for key, value in (BASE | changes).items() if value is not None}
    for lever in all_levers(Trial(prepare(from_mapping(scenario))).facts):
        found.setdefault(lever.name, []).append(lever)
    return found


def test_what_does_not_apply_is_not_tried():
    found = levers()
    assert not {
        "prefix_cache",
        "prefix_affinity",
        "slots",
        "slot_cap",
        "continuous_batching",
        "merge",
        "pd_ratio",
    } & set(found)
    assert {"quantisation", "kv_dtype", "token_budget", "order_by_prompt", "routing", "split", "add_replica"} <= set(
        found
    )
    assert all(lever.cures in CAUSES for values in found.values() for lever in values)


@pytest.mark.parametrize(
    ("changes", "gone"),
    [
        ({"engine": {"num_gpu_blocks_override": 5000}}, "memory_utilisation"),
        ({"engine": {"quantization": "fp8"}}, "quantisation"),
        ({"engine": {"kv_cache_dtype": "fp8"}}, "kv_dtype"),
        ({"engine": {"ordering": "lifo"}}, "order_by_prompt"),
        ({"replicas": 1}, "split"),
    ],
)
def test_what_is_pulled_already_is_not_tried_again(changes, gone):
    assert gone in levers() and gone not in levers(**changes)


def test_shared_prefixes_bring_the_prefix_cache():
    shared = BASE["workload"] | {"prefix": {"shared_tokens": 400}}
    assert "prefix_cache" in levers(workload=shared, engine={"enable_prefix_caching": False})
    assert "prefix_affinity" in levers(workload=shared)


@pytest.mark.parametrize(
    ("own", "seen"),
    [(None, HONEST_PREDICTOR), ("oracle", HONEST_PREDICTOR), ({"policy": "lognormal", "sigma": 0.4}, None)],
)
def test_orderings_see_an_honest_predictor(own, seen):
    workload = BASE["workload"] | ({"predictor": own} if own else {})
    (lever,) = levers(workload=workload)["order_by_prediction"]
    assert dict(lever.sets).get("workload.predictor") == seen


def test_pools_are_divided_anew_and_merged_with_the_same_gpus():
    found = levers(replicas=None, **POOLS)
    divided = [dict(lever.sets) for lever in found["pd_ratio"]]
    assert divided == [
        {"pools.prefill.replicas": 1, "pools.decode.replicas": 3},
        {"pools.prefill.replicas": 2, "pools.decode.replicas": 2},
    ]
    (merge,) = found["merge"]
    assert dict(merge.sets)["replicas"] == 4 and dict(merge.sets)["pools"] is None
    assert {"add_prefill", "add_decode"} <= set(found) and "split" not in found


def test_every_lever_makes_a_scenario_that_loads_or_is_refused_with_a_reason(tmp_path):
    import yaml

    from llmqsim.errors import ScenarioError

    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(BASE))
    bench, loaded = Bench(str(path)), 0
    for values in levers().values():
        for lever in values:
            try:
                assert bench.scenario(lever.overrides).spec != bench.scenario().spec
                loaded += 1
            except ScenarioError as error:
                assert "max_num_batched_tokens" in error.faults[0]
    assert loaded >= 12


def test_options_of_vllm_are_told_apart_from_what_a_router_does():
    sets = (
        ("engine.max_num_seqs", 64),
        ("engine.async_scheduling", True),
        ("routing", {"policy": "least_outstanding"}),
    )
    options, others = commands.served("vllm-0.19", sets)
    assert options == ["--max-num-seqs 64", "--async-scheduling"]
    assert others == ['routing={"policy": "least_outstanding"}']
    assert commands.served("sglang-0.5", sets[:1]) == ([], ["engine.max_num_seqs=64"])
    pooled = (("pools.decode.engine.kv_cache_dtype", "fp8"), ("pools.decode.replicas", 3))
    assert commands.served("vllm-0.19", pooled) == (["decode: --kv-cache-dtype fp8"], ["pools.decode.replicas=3"])


def test_of_one_key_the_last_value_counts():
    assert commands.together([(("a", 1), ("b", 2)), (("a", 3),)]) == (("b", 2), ("a", 3))
