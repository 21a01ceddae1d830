"""Levers and causes of advise: which apply to a scenario, what they set, and what is said of vLLM's options."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import from_mapping
from llmqsim.planner.advise import commands
from llmqsim.planner.advise.causes import causes
from llmqsim.planner.advise.classes import divided
from llmqsim.planner.advise.facts import HONEST_PREDICTOR
from llmqsim.planner.advise.levers import CAUSES, Lever, all_levers
from llmqsim.planner.advise.marks import mark
from llmqsim.planner.advise.rows import Row
from llmqsim.planner.advise.trial import Bench, Trial
from llmqsim.planner.verdict import BETTER
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
    urgent = (("engine.ordering", "priority"), ("pipeline_parallel_size", 2))
    assert commands.served("vllm-0.19", urgent) == (["--scheduling-policy priority", "--pipeline-parallel-size 2"], [])
    assert commands.served("sglang-0.5", sets[:1]) == ([], ["engine.max_num_seqs=64"])
    pooled = (("pools.decode.engine.kv_cache_dtype", "fp8"), ("pools.decode.replicas", 3))
    assert commands.served("vllm-0.19", pooled) == (["decode: --kv-cache-dtype fp8"], ["pools.decode.replicas=3"])


def layouts(**changes) -> set[tuple[int, int, int]]:
    """Tensor parallelism, stages and replicas of every layout that is tried."""
    own = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "replicas": 1} | changes
    found = levers(**changes)
    sets = [dict(lever.sets) for name in ("tensor_parallel", "pipeline_parallel") for lever in found.get(name, [])]
    return {tuple({**own, **one}[key] for key in own) for one in sets}


def test_every_layout_of_the_gpus_is_tried_and_no_other():
    """Counted by hand: eight GPUs are cut into replicas of TP x PP, each 1, 2, 4 or 8, that divide eight."""
    by_hand = {
        (1, 1, 8), (2, 1, 4), (4, 1, 2), (1, 2, 4), (2, 2, 2), (4, 2, 1), (1, 4, 2), (2, 4, 1), (1, 8, 1),
    }  # fmt: skip
    assert layouts(tensor_parallel_size=8, replicas=1) == by_hand
    assert layouts(replicas=3) == set()


def test_a_stated_kv_pool_says_nothing_of_another_layout():
    found = levers(replicas=2, engine={"num_gpu_blocks_override": 5000})["tensor_parallel"]
    assert [dict(lever.sets) for lever in found] == [
        {"tensor_parallel_size": 2, "replicas": 1, "engine.num_gpu_blocks_override": None}
    ]
    assert "KV pool as computed" in found[0].says


def test_one_replica_that_becomes_several_gets_a_router_that_looks():
    (lever,) = [one for one in levers(tensor_parallel_size=2, replicas=1)["tensor_parallel"]]
    assert dict(lever.sets)["routing"] == "least_outstanding"
    assert all("routing" not in dict(one.sets) for one in levers(replicas=4)["tensor_parallel"])


def test_experts_are_spread_where_there_are_any():
    experts = {"model": "qwen3-30b-a3b", "tensor_parallel_size": 2}
    (lever,) = levers(replicas=1, **experts)["expert_parallel"]
    assert lever.sets == (("engine.enable_expert_parallel", True),)
    (back,) = levers(replicas=1, **experts, engine={"enable_expert_parallel": True})["expert_parallel"]
    assert back.sets == (("engine.enable_expert_parallel", False),)
    assert "expert_parallel" not in levers(tensor_parallel_size=2)


def test_budget_and_slots_move_together_where_one_bounds_the_other():
    """vLLM refuses a budget below max_num_seqs: each pair must be one that it takes, while one of them alone is not."""
    slots = 1024
    pairs = [dict(lever.sets) for lever in levers(engine={"max_num_seqs": slots})["budget_and_slots"]]
    assert {one["engine.max_num_batched_tokens"] for one in pairs} == {128, 256, 512}
    assert all(one["engine.max_num_seqs"] == one["engine.max_num_batched_tokens"] < slots for one in pairs)
    crowd = BASE["workload"] | {"arrivals": {"process": "poisson", "rate": 40}}
    tight = levers(workload=crowd, engine={"max_num_seqs": 4, "max_num_batched_tokens": 4})
    raised = [dict(lever.sets) for lever in tight["budget_and_slots"]]
    assert raised and all(4 < one["engine.max_num_seqs"] <= one["engine.max_num_batched_tokens"] for one in raised)
    assert all(lever.parts == ("slots", "token_budget") for lever in tight["budget_and_slots"])


CLASSES = {
    "chat": {"share": 0.5, "priority": 0},
    "batch": {"share": 0.5, "priority": 1, "slo": {"e2e": "5 min"}},
}


def test_classes_bring_their_levers():
    found = levers(workload=BASE["workload"] | {"classes": CLASSES})
    assert [dict(lever.sets)["engine.ordering"] for lever in found["priority"]] == [
        "priority",
        {"policy": "priority", "preempt": True},
    ]
    assert dict(found["order_by_deadline"][0].sets) == {"engine.ordering": "edf"}
    assert dict(found["class_apart"][0].sets)["routing"]["groups"] == {"chat": [0, 1], "batch": [2, 3]}
    assert not {"priority", "order_by_deadline", "class_apart"} & set(levers())
    facts = Trial(prepare(from_mapping(BASE | {"workload": BASE["workload"] | {"classes": CLASSES}}))).facts
    assert mark(facts, "priority") == "in one queue: chat: attainment 100 %, batch: attainment 100 %"
    already = levers(workload=BASE["workload"] | {"classes": CLASSES}, engine={"ordering": "priority"})
    assert "priority" not in already and "order_by_deadline" not in already


@pytest.mark.parametrize(
    ("replicas", "work", "counts"),
    [
        (4, (1, 1), [2, 2]),
        (4, (1, 9), [1, 3]),
        (8, (3, 1), [6, 2]),
        (3, (1, 1, 100), [1, 1, 1]),
        (10, (5, 3, 2), [5, 3, 2]),
    ],
)
def test_replicas_are_divided_in_proportion(replicas, work, counts):
    """By hand: the largest remainder, at least one each."""
    assert divided(replicas, np.array(work, dtype=float)) == counts


def test_a_cap_of_the_clients_is_a_lever_and_the_rate_is_that_of_what_is_due():
    workload = BASE["workload"] | {"clients": {"max_in_flight": 3}}
    scenario = from_mapping(BASE | {"workload": workload, "run": {"engine": "reference"}})
    facts = Trial(prepare(scenario)).facts
    assert facts.rate_per_s == 4 and facts.cap == 3 and facts.held_s > 0
    sets = [lever.sets for lever in all_levers(facts) if lever.name == "client_cap"]
    assert [one[0][1] for one in sets] == [6, 12, None]
    assert "client_cap" not in levers() and Trial(prepare(from_mapping(BASE))).facts.held_s == 0


def row(
    name: str, cures: str, attainment: float, capacity: float, changes_answers=False, enough=False, plain=False
) -> Row:
    """A lever that is shown to help by so much."""
    lever = Lever(name, name, (("x", 1),), cures, changes_answers)
    return Row(
        lever,
        None,
        {"difference": attainment, "verdict": BETTER},
        {"difference": capacity, "verdict": BETTER},
        [],
        enough,
        plain,
    )


def test_the_cause_of_the_most_helpful_lever_comes_first_whatever_else_the_run_shows():
    facts = Trial(prepare(from_mapping(BASE | {"engine": {"max_num_seqs": 1}}))).facts
    assert facts.waits("slots") > 0.5
    rows = [row("slots", "slot_limit", 0.1, 1.0), row("prefix_cache", "prefix_cache", 0.99, 9.0)]
    named = causes(facts, rows, 0.3, short=False)
    assert [one["cause"] for one in named] == ["prefix_cache", "slot_limit"]
    assert "what prefix_cache gives" in named[0]["evidence"]


def test_of_levers_that_are_enough_alone_the_one_that_mends_what_the_run_shows_comes_first():
    shown = row("slots", "slot_limit", 0.8, 1.0, enough=True, plain=True)
    more = row("tensor_parallel", "layout", 0.8, 9.0, enough=True)
    most = row("token_budget", "token_budget", 0.1, 20.0, plain=True)
    assert sorted([most, more, shown], key=Row.rank, reverse=True) == [shown, more, most]


@pytest.mark.parametrize(("lossy", "first"), [(False, "slot_limit"), (True, "work")])
def test_what_changes_answers_comes_first_only_where_it_is_wanted(lossy, first):
    facts = Trial(prepare(from_mapping(BASE | {"engine": {"max_num_seqs": 1}}))).facts
    rows = [row("slots", "slot_limit", 0.1, 1.0), row("quantisation", "work", 0.2, 2.0, changes_answers=True)]
    assert causes(facts, rows, 0.3, short=False, lossy=lossy)[0]["cause"] == first


def test_a_run_that_does_not_settle_is_no_evidence_above_today_s_load():
    """Forty requests at fifty times the load are over in a moment: whatever they attain, no backlog is told."""
    trial = Trial(prepare(from_mapping(BASE | {"slo": {"ttft": "1 h"}})))
    assert trial.first_margin(1.0) > 0 > trial.first_margin(50.0)


def test_of_one_key_the_last_value_counts():
    assert commands.together([(("a", 1), ("b", 2)), (("a", 3),)]) == (("b", 2), ("a", 3))
