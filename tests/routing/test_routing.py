"""Routing and admission through `simulate`: who goes where, what waits at the router, who is refused, who comes again."""

from __future__ import annotations

import numpy as np
import pytest

from llmqsim import from_mapping, simulate
from llmqsim.errors import UserError
from llmqsim.requests import Outcome

STEP = {"model": "constant", "step": "10 ms"}
BURST = {
    "workload": {"requests": 16, "arrivals": {"process": "burst"}, "lengths": {"prompt": 100, "output": 50}},
    "cost": STEP,
    "replicas": 8,
    "engine": {"num_gpu_blocks_override": 2000},
}
STREAM = {
    "workload": {
        "requests": 2000,
        "arrivals": {"process": "poisson", "rate": 30},
        "lengths": {"prompt": 100, "output": {"exponential": {"mean": 20}}},
    },
    "cost": STEP,
    "replicas": 4,
    "engine": {"max_num_seqs": 4, "num_gpu_blocks_override": 2000},
}


def result(base: dict, **sets):
    return simulate(from_mapping(base, sets={key.replace("__", "."): value for key, value in sets.items()}))


def told(base: dict, **sets) -> str:
    with pytest.raises(UserError) as error:
        result(base, **sets)
    return str(error.value)


def shares(run) -> list[int]:
    return run.summary()["utilisation"]["requests_per_replica"]


# S12: the router sends everybody to the same place.


def test_old_reports_send_a_burst_to_one_replica_unless_the_router_counts_its_own():
    for age in ("1 s", "10 ms"):
        blind = {"policy": "least_loaded", "signal_age": age, "count_own": False}
        assert shares(result(BURST, routing=blind)) == [16, 0, 0, 0, 0, 0, 0, 0]
        assert shares(result(BURST, routing={**blind, "count_own": True})) == [2] * 8
    assert shares(result(BURST, routing={"policy": "least_kv", "signal_age": "1 s", "count_own": False}))[0] == 16
    assert shares(result(BURST, routing={"policy": "least_kv", "signal_age": "1 s"})) == [2] * 8


@pytest.mark.parametrize("seed", range(3))
def test_affinity_alone_fills_one_replica_and_with_load_none(seed):
    prefix = {
        "workload": {
            "requests": 800,
            "arrivals": {"process": "poisson", "rate": 120},
            "lengths": {"prompt": 1100, "output": 20},
            "prefix": {"shared_tokens": 1000},
        },
        "cost": {"model": "affine", "base": "10 ms", "per_prefill_token": "20 us"},
        "replicas": 8,
        "engine": {"max_num_seqs": 16, "num_gpu_blocks_override": 4000, "enable_prefix_caching": True},
        "run": {"seed": seed},
    }
    alone = result(prefix, routing={"policy": "prefix_affinity", "load_weight": 0}).summary()
    weighed = result(prefix, routing={"policy": "prefix_affinity"}).summary()
    assert max(alone["routing"]["share_per_replica"]) > 0.6
    assert max(weighed["routing"]["share_per_replica"]) < 0.2
    # what load costs in cache hits, and what affinity costs in waiting
    assert weighed["prefix_cache"]["hit_share"] < alone["prefix_cache"]["hit_share"]
    assert weighed["ttft_s"]["mean"] < alone["ttft_s"]["mean"] / 5
    assert len(alone["routing"]["ttft_mean_s_per_replica"]) == len(alone["routing"]["hit_share_per_replica"]) == 8


# Load.


def test_reports_come_at_multiples_of_the_period_and_are_then_up_to_date():
    """Two a second to the replica that reported fewer: everybody between two reports goes to the same one."""
    base = {
        **BURST,
        "workload": {
            "requests": 8,
            "arrivals": {"process": "constant", "rate": 4},
            "lengths": {"prompt": 1, "output": 1000},
        },
        "replicas": 2,
    }
    run = result(base, routing={"policy": "least_loaded", "signal_age": "1 s", "count_own": False})
    assert run.table.arrival_ns.tolist()[:3] == [250_000_000, 500_000_000, 750_000_000]
    # reports at 1 s (3, 0), before who comes at that instant, and at 2 s (3, 4)
    assert run.table.replica.tolist() == [0, 0, 0, 1, 1, 1, 1, 0]
    fresh = result(base, routing={"policy": "least_loaded", "count_own": False})
    assert fresh.table.replica.tolist() == [0, 1] * 4


def test_random_and_two_choices_are_as_even_as_theory_says():
    counts = np.array(shares(result(STREAM, routing="random")))
    chi = ((counts - 500) ** 2 / 500).sum()
    assert chi < 16.3  # 99.9 % of chi-square with 3 degrees of freedom
    busy = {**STREAM, "workload": {**STREAM["workload"], "arrivals": {"process": "poisson", "rate": 70}}}
    waits = {
        name: result(busy, routing=name).summary()["wait_s"]["mean"]
        for name in ("random", "power_of_two", "least_outstanding")
    }
    assert waits["least_outstanding"] < waits["power_of_two"] < waits["random"]


def test_a_random_choice_belongs_to_the_request():
    one = result(STREAM, routing="random").table.replica
    other = result(STREAM, routing="random", **{"engine.max_num_seqs": 8}).table.replica
    assert one.tolist() == other.tolist()
    assert one.tolist() != result(STREAM, routing="random", **{"run.seed": 1}).table.replica.tolist()


def test_predicted_work_balances_what_counts_cannot_see():
    """One at a time and answers of very different length: behind whom one waits matters more than behind how many."""
    base = {
        **STREAM,
        "engine": {"max_num_seqs": 1, "num_gpu_blocks_override": 2000},
        "workload": {
            **STREAM["workload"],
            "lengths": {"prompt": 10, "output": {"lognormal": {"mean": 20, "cv": 3}}},
            "arrivals": {"process": "poisson", "rate": 14},
            "predictor": "oracle",
        },
    }
    by_count = result(base, routing="least_outstanding").summary()["wait_s"]["mean"]
    by_work = result(base, routing="least_predicted_work").summary()["wait_s"]["mean"]
    assert by_work < by_count


# Sessions and groups.


def test_a_session_stays_where_it_began():
    base = {
        **STREAM,
        "workload": {**STREAM["workload"], "prefix": {"shared_tokens": 64, "groups": 9}},
        "engine": {"max_num_seqs": 4, "num_gpu_blocks_override": 2000, "enable_prefix_caching": True},
    }
    run = result(base, routing={"policy": "session_sticky", "by": "prefix"})
    begins = np.array([run.table.prefixes.row(row)[0] for row in range(len(run.table))])
    places = [np.unique(run.table.replica[begins == begin]) for begin in np.unique(begins)]
    assert len(places) == 9 and all(len(place) == 1 for place in places)
    assert len(np.unique(np.concatenate(places))) > 1
    tenants = result(base, routing="session_sticky").table.replica  # one tenant: one replica
    assert len(np.unique(tenants)) == 1


def test_classes_and_lengths_have_replicas_of_their_own():
    classes = {"chat": {"share": 0.5}, "batch": {"share": 0.3}, "rest": {"share": 0.2}}
    base = {**STREAM, "workload": {**STREAM["workload"], "classes": classes}}
    run = result(base, routing={"policy": "by_class", "groups": {"chat": [0, 1], "batch": [2]}})
    places = {
        name: set(run.table.replica[run.table.class_id == i].tolist()) for i, name in enumerate(run.table.classes)
    }
    assert places == {"chat": {0, 1}, "batch": {2}, "rest": {3}}
    base = {**STREAM, "workload": {**STREAM["workload"], "lengths": {"prompt": {"uniform": [1, 400]}, "output": 5}}}
    run = result(base, routing={"policy": "by_length", "limits": [100, 300], "groups": [[0], [1, 2], [3]]})
    for low, high, group in ((1, 100, {0}), (101, 300, {1, 2}), (301, 400, {3})):
        assert (
            set(run.table.replica[(run.table.prompt_tokens >= low) & (run.table.prompt_tokens <= high)].tolist())
            == group
        )


# Late binding.


def test_late_binding_is_one_queue():
    """With a place each, four replicas behind one queue wait less than four queues, and all the wait is at the router."""
    base = {
        **STREAM,
        "engine": {"max_num_seqs": 1, "num_gpu_blocks_override": 2000},
        "workload": {**STREAM["workload"], "arrivals": {"process": "poisson", "rate": 16}},
    }
    early, late = result(base), result(base, routing={"policy": "round_robin", "late_binding": 1})
    assert late.summary()["wait_s"]["mean"] < early.summary()["wait_s"]["mean"] / 2
    waits = late.summary()["waiting_for"]
    assert waits["largest"] == "router" and waits["slots"]["share"] == 0
    # first come, first served: nobody starts before one who came earlier
    assert (np.diff(late.table.first_scheduled_ns) >= 0).all()


def test_waits_add_up_with_late_binding():
    run = result(STREAM, routing={"policy": "least_outstanding", "late_binding": 3})
    table = run.table
    parts = sum(
        getattr(table, name)
        for name in ("wait_router_ns", "wait_step_ns", "wait_slots_ns", "wait_kv_ns", "wait_token_budget_ns")
    )
    assert (parts == table.first_scheduled_ns - table.arrival_ns).all() and table.wait_router_ns.max() > 0


def test_a_run_that_is_cut_settles_who_waits_at_the_router():
    run = result(STREAM, routing={"policy": "round_robin", "late_binding": 1}, run__until="20 s")
    held = (run.table.replica < 0) & (run.table.arrival_ns >= 0) & (run.table.arrival_ns < 20_000_000_000)
    assert held.any()
    assert (run.table.wait_router_ns[held] == 20_000_000_000 - run.table.arrival_ns[held]).all()


# Admission.


def test_a_token_bucket_lets_in_its_burst_and_then_its_rate():
    base = {
        **STREAM,
        "workload": {**STREAM["workload"], "requests": 500, "arrivals": {"process": "constant", "rate": 10}},
    }
    run = result(base, admission={"policy": "token_bucket", "rate": 5, "burst": 20})
    entered = np.flatnonzero(run.table.outcome == Outcome.COMPLETED)
    assert entered[:20].tolist() == list(range(20))
    assert len(entered) == pytest.approx(20 + 5 * 49.9, abs=1)
    assert run.summary()["requests"]["rejected_for"] == {"rate_limited": 500 - len(entered)}


def test_a_bucket_of_tokens_counts_prompt_and_limit():
    base = {**BURST, "workload": {**BURST["workload"], "max_tokens": "output"}}
    run = result(base, admission={"policy": "token_bucket", "rate": 1, "burst": 600, "of": "tokens"})
    assert run.summary()["requests"]["completed"] == 4  # 150 tokens each


def test_a_queue_cap_bounds_the_wait_at_the_price_of_refusals():
    base = {
        **STREAM,
        "workload": {**STREAM["workload"], "arrivals": {"process": "poisson", "rate": 120}},
        "slo": {"ttft": "500 ms"},
    }
    open_, capped = result(base).summary(), result(base, admission={"policy": "queue_cap", "most": 8}).summary()
    assert open_["stability"]["verdict"] == "overloaded"
    assert capped["ttft_s"]["max"] < open_["ttft_s"]["p50"]
    assert capped["requests"]["rejected_for"].keys() == {"queue_full"} and capped["kv"]["waiting"]["peak"] <= 9
    assert capped["attainment"] > 2 * open_["attainment"]
    none = result(BURST, admission={"policy": "queue_cap", "most": 3, "of": "outstanding"}).summary()
    assert none["requests"]["rejected"] == 13


def test_early_refusal_keeps_its_promise_to_those_it_lets_in():
    base = {
        **STREAM,
        "workload": {**STREAM["workload"], "arrivals": {"process": "poisson", "rate": 120}},
        "slo": {"ttft": "1 s"},
    }
    run = result(base, admission="deadline", routing="least_outstanding")
    told_ = run.summary()
    assert told_["requests"]["rejected_for"].keys() == {"would_miss_deadline"}
    done = run.table.outcome == Outcome.COMPLETED
    late = (run.table.first_token_ns - run.table.arrival_ns)[done] > 1_000_000_000
    assert late.mean() < 0.2 and done.sum() > 0.3 * len(done)


# Retries.


def test_who_is_refused_comes_again_after_the_pause_and_counts_from_the_first_sending():
    base = {
        **BURST,
        "replicas": 1,
        "workload": {
            **BURST["workload"],
            "requests": 2,
            "clients": {"retries": {"attempts": 3, "backoff": "0.3 s", "jitter": 0}},
        },
    }
    run = result(base, admission={"policy": "queue_cap", "most": 1, "of": "outstanding"})
    # the first ends after 0.5 s; the second tries at 0, 0.3 and 0.9 s
    assert run.table.retries.tolist() == [0, 2]
    assert run.table.arrival_ns[1] == 0 and run.table.first_scheduled_ns[1] == 900_000_000
    assert (run.table.outcome == Outcome.COMPLETED).all()


def test_who_runs_out_of_attempts_is_refused():
    base = {
        **BURST,
        "replicas": 1,
        "workload": {
            **BURST["workload"],
            "requests": 2,
            "clients": {"retries": {"attempts": 1, "backoff": "0.1 s", "jitter": 0}},
        },
    }
    run = result(base, admission={"policy": "queue_cap", "most": 1, "of": "outstanding"})
    assert run.table.retries.tolist() == [0, 1] and run.table.outcome.tolist() == [Outcome.COMPLETED, Outcome.REJECTED]


def test_a_time_out_is_tried_again_from_the_start():
    base = {
        **BURST,
        "replicas": 1,
        "workload": {
            **BURST["workload"],
            "requests": 2,
            "clients": {"timeout": "0.7 s", "retries": {"attempts": 1, "backoff": "0.5 s", "jitter": 0}},
        },
        "engine": {"max_num_seqs": 1, "num_gpu_blocks_override": 2000},
    }
    run = result(base)
    # the second starts at 0.5 s, is given up at 0.7 s, comes again at 1.2 s and needs 0.5 s
    assert run.table.outcome.tolist() == [Outcome.COMPLETED] * 2
    assert run.table.retries.tolist() == [0, 1]
    assert run.table.finish_ns[1] == 1_700_000_000 and run.table.arrival_ns[1] == 0
    assert run.table.wait_slots_ns[1] == 0  # of the last attempt


@pytest.mark.parametrize("attempts", [0, 6])
def test_retries_make_a_storm(attempts):
    """A short overload that would drain in a minute is kept alive by clients that give up and come again."""
    stages = [{"rate": 17, "duration": 20}, {"rate": 60, "duration": 10}, {"rate": 17, "duration": 200}]
    base = {
        **STREAM,
        "replicas": 1,
        "engine": {"max_num_seqs": 4, "num_gpu_blocks_override": 2000},
        "workload": {
            "arrivals": {"process": "poisson", "stages": stages},
            "lengths": {"prompt": 100, "output": 20},
            "clients": {"timeout": "3 s"},
        },
    }
    if attempts:
        base["workload"]["clients"]["retries"] = {"attempts": attempts, "backoff": "1 s", "multiplier": 1}
    run = result(base)
    late = run.table.intended_ns > 60_000_000_000
    lost = (run.table.outcome != Outcome.COMPLETED)[late].mean()
    tries = run.table.retries[late].mean()
    assert (lost < 0.05 and tries == 0) if attempts == 0 else tries > 0.5


def test_everybody_is_accounted_for_with_all_of_it_together():
    for seed in range(6):
        base = {
            **STREAM,
            "workload": {
                **STREAM["workload"],
                "requests": 400,
                "arrivals": {"process": "poisson", "rate": 80},
                "clients": {"timeout": "2 s", "max_in_flight": 60, "retries": {"attempts": 3, "backoff": "0.2 s"}},
            },
            "admission": {"policy": "queue_cap", "most": 10},
            "routing": {"policy": "least_loaded", "signal_age": "100 ms", "late_binding": 6},
            "run": {"seed": seed},
        }
        run = result(base)
        counts = run.summary()["requests"]
        assert counts["completed"] + counts["rejected"] + counts["timed_out"] == 400 and counts["unfinished"] == 0
        assert (run.table.retries <= 3).all() and run.table.retries.max() > 0
        again = result(base)
        assert (run.table.data == again.table.data).all()


# What is refused.


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ({"routing": {"policy": "by_length", "limits": [64], "groups": [[0], [9]]}}, "replica 9 does not exist"),
        ({"routing": {"policy": "by_length", "limits": [64], "groups": [[0]]}}, "one list of replicas more than limits"),
        ({"routing": {"policy": "by_length", "limits": [64, 32], "groups": [[0], [1], [2]]}}, "rising"),
        ({"routing": {"policy": "by_class", "groups": {"chatt": [0]}}}, "no such traffic class"),
        ({"routing": {"policy": "by_class", "groups": {"all": "zero"}}}, "list of replicas"),
        ({"routing": {"policy": "by_length", "limits": [9], "groups": [[0], [1]], "by": "predicted"}}, "workload.predictor"),
        ({"routing": {"policy": "random", "signal_age": "1 s"}}, "routing.signal_age: plays no part"),
        ({"routing": {"policy": "session_sticky", "by": "tennant"}}, "did you mean 'tenant'"),
        ({"routing": {"policy": "prefix_affinity", "load_weight": -1}}, "at least 0"),
        ({"admission": "deadline"}, "slo.ttft"),
        ({"admission": {"policy": "token_bucket", "rate": 5}}, "burst must be"),
        ({"admission": {"policy": "queue_cap"}}, "most must be"),
        ({"admission": "queuecap"}, "did you mean 'queue_cap'"),
        ({"workload.clients.retries": {"attempts": 2}}, "never happens"),
        ({"workload.clients": {"timeout": "1 s", "retries": {"attempts": 2, "after": "refusal"}}}, "never happens"),
        ({"workload.clients": {"timeout": "1 s", "retries": {"attempts": 0}}}, "attempts"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_go_together_is_refused(sets, said):
    assert said in told(BURST, **sets)
