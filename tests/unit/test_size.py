"""size: right against trying every number, reasons where there is no answer, arithmetic against simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmqsim import UserError, from_mapping
from llmqsim.metrics import slo
from llmqsim.planner.bounds import Bounds
from llmqsim.planner.flags import scenario_from
from llmqsim.planner.size import Effort, Search
from llmqsim.planner.sizing import Question, command, size
from llmqsim.planner.step_error import moved
from llmqsim.planner.vary import at_load, with_replicas
from llmqsim.simulation import Prepared, prepare

LINE = {
    "workload": {
        "requests": 1500,
        "arrivals": {"process": "poisson", "rate": 25},
        "lengths": {"prompt": {"exponential": {"mean": 1000}}, "output": 1},
    },
    "cost": {"model": "affine", "per_prefill_token": 1e-4},
    "engine": {"max_num_seqs": 1, "max_num_batched_tokens": 1_000_000},
    "routing": "round_robin",
    "slo": {"e2e": 0.6, "attainment": 0.95},
}
"""single servers with a mean service of 0.1 s: 2.5 of them are busy"""
FLAGS = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "rate": "8", "in": "500:1", "out": "100:1", "ttft": "500ms", "tpot": "50ms"}


def attained(prepared, replicas: int, runs: range) -> float:
    servers, met, asked = with_replicas(prepared, replicas), 0, 0
    for replication in runs:
        result = servers.run(0, replication)
        seen = slo.stand_all(result)
        met, asked = met + int(seen.met.sum()), asked + int(seen.asked.sum())
    return met / asked


def test_the_answer_is_what_trying_every_number_finds():
    prepared = prepare(from_mapping(LINE))
    answer = Search(prepared, Effort()).answer()
    fresh = range(5000, 5015)
    assert attained(prepared, answer.replicas, fresh) >= 0.95
    assert attained(prepared, answer.replicas - 1, fresh) < 0.955
    assert attained(prepared, answer.replicas - 2, fresh) < 0.95
    told = answer.attained.told()
    assert told["low"] >= 0.95 and told["low"] <= attained(prepared, answer.replicas, fresh) <= told["high"] + 0.005


def test_the_search_does_not_depend_on_where_it_starts():
    few = Search(prepare(from_mapping(LINE | {"replicas": 40})), Effort()).answer()
    assert few.replicas == Search(prepare(from_mapping(LINE)), Effort()).answer().replicas


def test_the_json_has_the_keys_that_scripts_rely_on():
    told = size(Question(flags=FLAGS))
    keys = ["verdict", "replicas", "gpus", "attainment", "one_less", "headroom_rate_per_s", "binds", "reason"]
    assert list(told)[: len(keys)] == keys and "command" in told
    assert told["verdict"] == "feasible" and told["reason"] is None
    assert {"mean", "low", "high"} <= set(told["attainment"])
    assert told["n_plus_one"]["replicas"] == told["replicas"] + 1
    again = size(Question(flags=FLAGS))
    assert {k: v for k, v in told.items() if k != "seconds"} == {k: v for k, v in again.items() if k != "seconds"}


REASONS = {
    "prefill_exceeds_ttft": {"slo": {"ttft": 0.0001}},
    "e2e_exceeds_target": {"slo": {"e2e": 0.02}},
    "requests_too_long": {"engine": LINE["engine"] | {"max_model_len": 500}},
    "most_replicas_reached": {},
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_no_number_of_replicas_mends_has_a_reason(reason):
    most = 3 if reason == "most_replicas_reached" else 1024
    found = Search(prepare(from_mapping(LINE | REASONS[reason])), Effort(most_replicas=most)).answer()
    assert (found.replicas, found.reason) == (None, reason) and found.sentence


NO_ROOM = {
    "weights_do_not_fit": ({"model": "llama-3.1-70b"}, [], "TP 2 is the smallest that fits"),
    "max_model_len_exceeds_kv_pool": ({}, ["engine.num_gpu_blocks_override=100", "engine.max_model_len=8192"], "at most 1,584"),
    "kv_pool_too_small": ({}, ["engine.num_gpu_blocks_override=1"], "at least 2 are needed"),
    "activations_do_not_fit": ({}, ["engine.max_num_batched_tokens=5000000"], "leave no memory for KV"),
    "no_request_fits": ({"in": "500:0", "out": "100:0"}, ["engine.num_gpu_blocks_override=10"], "engine.max_model_len is 144"),
}


@pytest.mark.parametrize("reason", NO_ROOM)
def test_each_kind_of_room_that_is_missing_has_a_reason_of_its_own(reason):
    """By hand: 70.6 billion weights of two bytes need two cards of 80 GB; 99 usable blocks of 16 tokens are 1,584."""
    change, sets, said = NO_ROOM[reason]
    told = size(Question(flags=FLAGS | change, sets=tuple(sets)))
    assert (told["verdict"], told["reason"], told["replicas"]) == ("infeasible", reason, None)
    assert said in told["explanation"] and not told["explanation"].startswith(("--set", "<mapping>"))


def test_too_few_replicas_allowed_is_said_so():
    """One replica carries some 60 req/s at most by means; a thousand are asked for."""
    told = size(Question(flags=FLAGS | {"rate": "1000"}, effort=Effort(most_replicas=1)))
    assert (told["verdict"], told["reason"]) == ("infeasible", "most_replicas_reached")
    assert "arithmetic asks for at least" in told["explanation"]


def test_one_less_that_is_not_shown_to_be_enough_says_why():
    search = Search(prepare(from_mapping(LINE)), Effort())
    answer = search.answer()
    assert search.why_less(answer.replicas, answer.one_less) == answer.one_less.why_open
    strict = Search(prepare(from_mapping(LINE | {"slo": {"e2e": 1000.0, "attainment": 0.5}})), Effort())
    found = strict.answer()
    assert strict.why_less(found.replicas, found.one_less) or found.one_less.judged == "broken"


def test_the_answer_has_gpus_per_replica_and_concurrency():
    told = size(Question(flags=FLAGS, axes={"tensor_parallel_size": [2]}, effort=Effort(headroom=False)))
    assert told["gpus_per_replica"] == 2 and told["gpus"] == 2 * told["replicas"]
    held = told["concurrency"]
    assert 0 < held["sustained"] <= held["peak"] and held["guaranteed"] > 0
    assert told["run_length"]["run"] >= told["run_length"]["asked"]


# Step times ---------------------------------------------------------------------------------------------------------


def _with_error(prepared: Prepared, percent: float) -> Prepared:
    """The same, as if its costs stated an error."""
    deployment = prepared.servers.deployment
    errors = {"gemm": {"median_percent": 5, "p90_percent": percent}, "other": {"p90_percent": percent / 2}}
    cost = replace(deployment.cost, errors=errors)
    return Prepared(prepared.scenario, replace(prepared.servers, deployment=replace(deployment, cost=cost)))


def test_costs_of_the_scenario_state_no_error():
    assert Search(prepare(from_mapping(LINE)), Effort()).step_error(4) is None


def test_the_answer_under_other_step_times_is_that_of_other_costs():
    """With an error of 20 %, the answers are those of scenarios whose prompts cost 1.2 and 0.8 times as much."""
    search = Search(_with_error(prepare(from_mapping(LINE)), 20), Effort())
    answer = search.answer()
    error = search.step_error(answer.replicas)
    assert error.error == pytest.approx(0.2)
    for other, factor in ((error.longer, 1.2), (error.shorter, 0.8)):
        own = LINE | {"cost": {"model": "affine", "per_prefill_token": factor * 1e-4}}
        assert other.factor == pytest.approx(factor)
        assert abs(other.value - Search(prepare(from_mapping(own)), Effort()).answer().replicas) <= 1
    assert error.shorter.value < answer.replicas < error.longer.value


def test_a_target_that_longer_steps_break_has_its_reason():
    """Alone 95 % of exponential services of mean 0.12 s take up to 0.36 s: above a target that 0.1 s keeps (0.30 s)."""
    prepared = prepare(from_mapping(LINE | {"slo": {"e2e": 0.34, "attainment": 0.95}}))
    error = moved(_with_error(prepared, 20), lambda one: (None, Search(one, Effort()).bracket(40).reason))
    assert (error.longer.value, error.longer.reason) == (None, "e2e_exceeds_target")
    assert error.shorter.reason is None


def test_decoding_alone_may_be_too_slow():
    told = size(Question(flags=FLAGS | {"tpot": "1ms"}))
    assert (told["verdict"], told["reason"]) == ("infeasible", "decode_exceeds_tpot")
    assert "no number of replicas" in told["explanation"]


def test_weights_that_do_not_fit_are_a_reason_and_more_gpus_an_answer():
    flags = FLAGS | {"model": "llama-3.1-70b", "rate": "1", "ttft": "2s"}
    assert size(Question(flags=flags))["reason"] == "weights_do_not_fit"
    told = size(Question(flags=flags, axes={"tensor_parallel_size": [1, 4]}))
    assert told["verdict"] == "feasible" and told["gpus"] == 4 * told["replicas"]
    assert [one["reason"] for one in told["candidates"]] == ["weights_do_not_fit", None]


def test_the_cheapest_of_several_gpus_by_the_readers_own_prices():
    ask = {"gpu": ["h100-sxm", "a100-sxm-80gb"]}
    dear = size(Question(flags=FLAGS, axes=ask, prices=("h100-sxm=100", "a100-sxm-80gb=1")))
    cheap = size(Question(flags=FLAGS, axes=ask, prices=("h100-sxm=1", "a100-sxm-80gb=100")))
    assert (dear["deployment"]["gpu"], cheap["deployment"]["gpu"]) == ("a100-sxm-80gb", "h100-sxm")
    assert cheap["usd_per_hour"] == cheap["gpus"] * 1.0 and cheap["prices"] == ["given"]


def test_every_class_must_keep_its_own():
    classes = {"fast": {"share": 0.5, "slo": {"e2e": 0.45}}, "slow": {"share": 0.5, "slo": {"e2e": 5}}}
    strict = Search(prepare(from_mapping(LINE | {"workload": LINE["workload"] | {"classes": classes}})), Effort()).answer()
    told = strict.attained.told()
    assert set(told["objectives"]) == {"fast: attainment", "slow: attainment"}
    assert told["objective"] == "fast: attainment" and told["low"] >= 0.95


def test_a_trace_is_judged_by_its_batches(tmp_path):
    generator = np.random.default_rng(0)
    arrival = np.cumsum(generator.exponential(1 / 25, 3000))
    rows = "\n".join(f"{t:.6f},{p},1" for t, p in zip(arrival, generator.geometric(1e-3, 3000), strict=True))
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + rows + "\n")
    scenario = from_mapping(LINE | {"workload": {"trace": {"file": "t.csv"}}}, folder=str(tmp_path))
    answer = Search(prepare(scenario), Effort()).answer()
    assert answer.replicas and len(answer.attained.samples) == 1 and answer.attained.told()["low"] >= 0.95


def test_a_closed_loop_has_no_rate_to_spare():
    loop = {"process": "closed_loop", "clients": 12, "think_time": "200 ms"}
    search = Search(prepare(from_mapping(LINE | {"workload": LINE["workload"] | {"arrivals": loop}})), Effort())
    answer = search.answer()
    assert answer.replicas and search.rate_per_s is None and search.headroom(answer.replicas) is None


# Flags --------------------------------------------------------------------------------------------------------------


def test_a_bare_mean_is_warned_about_and_a_cv_is_not():
    assert "a bare mean says nothing about the tail" in scenario_from(FLAGS | {"in": "500"}).notes[0]
    assert scenario_from(FLAGS).notes == []
    assert scenario_from(FLAGS | {"out": "250:0"}).mapping["workload"]["lengths"]["output"] == 250
    shaped = scenario_from(FLAGS | {"in": "500:azure-code"}).mapping["workload"]["lengths"]["prompt"]
    assert shaped["lognormal"]["mean"] == 500 and 0.5 < shaped["lognormal"]["cv"] < 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": None}, "--model: missing"),
        ({"rate": "0"}, "--rate: must be above 0"),
        ({"rate": "20 apples"}, "--rate: unknown unit 'apples'"),
        ({"ttft": "500"}, "--ttft: has no unit (got '500'); write 500ms or 500s"),
        ({"attainment": "1"}, "--attainment: no finite run can show 100 %"),
        ({"attainment": "100%"}, "--attainment: no finite run can show 100 %"),
        ({"in": "x"}, "--in: must be a mean and its CV"),
        ({"in": "500:azur-code"}, "--in: unknown length preset (got 'azur-code'); did you mean 'azure-code'?"),
        ({"slo": "ttft:500"}, "--ttft: is in --slo, too"),
        ({"trace": "t.csv"}, "--trace: brings its own arrivals and lengths"),
        ({"ttft": None, "tpot": None}, "--slo: missing"),
    ],
)
def test_flags_that_can_not_be(change, said):
    with pytest.raises(UserError) as caught:
        scenario_from(FLAGS | change)
    assert said in str(caught.value)


def test_the_command_asks_the_same_again():
    question = Question(flags=FLAGS, axes={"gpu": ["h100-sxm", "l40s"], "engine.max_num_seqs": [64, 128]}, seed=3)
    words = command(question)
    assert "--gpu h100-sxm,l40s" in words and "--try engine.max_num_seqs=64,128" in words and "--seed 3" in words
    assert "--in 500:1" in words and words.startswith("llmqsim size --model llama-3.1-8b")


# Arithmetic ---------------------------------------------------------------------------------------------------------


def bounds_of(scenario) -> tuple[Bounds, object]:
    prepared = prepare(scenario)
    return Bounds(prepared.servers.deployment, prepared.run(0, 0).table), prepared


def test_one_slot_is_pollaczek_khinchine():
    one, _ = bounds_of(from_mapping(LINE | {"workload": LINE["workload"] | {"requests": 20000}}))
    load = 0.7
    rate = load / float(np.mean(one.service_s))
    cs = float(np.var(one.service_s) / np.mean(one.service_s) ** 2)
    exact = load / (1 - load) * (1 + cs) / 2 * float(np.mean(one.service_s))
    assert one.wait_s(rate) == pytest.approx(exact, rel=0.03)  # its arrivals' CV is this sample's
    assert one.capacity_per_s == pytest.approx(10, rel=0.03)


def test_capacity_is_what_an_overloaded_replica_completes():
    mapping = scenario_from(FLAGS | {"rate": "60"}).mapping
    one, prepared = bounds_of(from_mapping(mapping))
    faster = prepare(at_load(prepared.scenario, 1.6 * one.capacity_per_s / one.mix.rate_per_s))
    done = faster.run(0, 0).summary()["stability"]
    assert done["verdict"] == "overloaded"
    assert done["completion_rate_per_s"] == pytest.approx(one.capacity_per_s, rel=0.1)
    assert one.binding.name in ("slots", "kv", "token_budget")
    assert one.replicas_by_means(10 * one.capacity_per_s * 0.999) == 10


def test_a_cap_of_the_clients_is_named_where_no_number_keeps_the_slo():
    """4 in flight for 1 s each carry 4 of 6 requests a second, however many servers there are (Little 1961)."""
    held = LINE | {
        "workload": {
            "requests": 300,
            "arrivals": {"process": "poisson", "rate": 6},
            "lengths": {"prompt": 100, "output": 50},
            "clients": {"max_in_flight": 4},
        },
        "cost": {"model": "affine", "base": 0.02},
        "slo": {"ttft": 0.5, "attainment": 0.95},
    }
    answer = Search(prepare(from_mapping(held)), Effort(most_replicas=8)).answer()
    assert answer.reason == "most_replicas_reached" and "at most 4 in flight (workload.clients.max_in_flight)" in answer.sentence
