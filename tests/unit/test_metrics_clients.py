"""Warm-up, classes with their own SLO, late sending, censoring and the suggested cap: each figure by hand or by law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmqsim import from_mapping, simulate
from llmqsim.metrics.kv_cap import suggested_cap
from llmqsim.metrics.warmup import mser5
from llmqsim.report.tables import screen
from llmqsim.requests import UNSET, Outcome
from tests.support import table
from tests.unit.test_metrics_result import made

STEADY = {"model": "affine", "base": "8 ms", "per_prefill_token": "50 us", "per_decode_request": "0.1 ms"}


# Warm-up --------------------------------------------------------------------------------------------------------


def test_mser5_cuts_the_start_and_nothing_of_a_steady_series():
    generator = np.random.default_rng(1)
    noise = generator.integers(90, 111, 400)
    assert mser5([100] * 400) == 0
    assert mser5([1000] * 60 + [100] * 340) == 60
    assert mser5([*range(500, 100, -10), *noise]) in range(30, 50, 5)
    assert mser5(noise.tolist()) <= 40


def test_mser5_says_when_there_is_no_end_of_the_start():
    assert mser5(list(range(400))) is None, "a ramp never settles"
    assert mser5([5] * 49) is None, "too few to compare"


def test_mser5_is_the_definition():
    values = [int(v) for v in np.random.default_rng(2).exponential(1000, 163)]
    batches = np.array([sum(values[5 * i : 5 * i + 5]) for i in range(32)], dtype=float)
    errors = [((batches[d:] - batches[d:].mean()) ** 2).sum() / (32 - d) ** 2 for d in range(17)]
    assert mser5(values) == (None if np.argmin(errors) > 14 else 5 * int(np.argmin(errors)))


def rows(count: int, slow: int) -> list[dict]:
    """Requests one a second; the first `slow` take 5 s to their first token, the others 1 s."""
    return [
        {"arrival": i, "output": 3, "first_scheduled": i, "first_token": i + (5 if i < slow else 1),
         "finish": i + (7 if i < slow else 3)}
        for i in range(count)
    ]  # fmt: skip


def test_a_declared_cut_leaves_requests_out_of_every_share_and_keeps_the_counts():
    figures = made(rows(100, 10), end_s=110.0, warmup={"requests": 10, "drain": False}).summary()
    assert figures["requests"]["completed"] == 100 and figures["ttft_s"]["n"] == 90
    assert (figures["ttft_s"]["max"], figures["warmup"]["all"]["ttft_s"]["max"]) == (1.0, 5.0)
    assert figures["warmup"]["cut_s"] == 10.0 and figures["warmup"]["share"] == 0.1
    # 7 of the warm-up end after 10 s, in the window
    assert figures["throughput"]["requests_per_s"] == pytest.approx(97 / 92)
    assert figures["warmup"]["all"]["throughput"]["requests_per_s"] == pytest.approx(100 / 102)
    assert figures["completed"] == 90 and figures["mean_ttft_ms"] == 1000.0
    by_time = made(rows(100, 10), end_s=110.0, warmup={"time": 9.5}).summary()
    assert by_time["warmup"]["cut_requests"] == 10


def test_a_detected_cut_and_a_cut_of_everything():
    figures = made(rows(100, 10), end_s=110.0, warmup="auto").summary()
    assert (figures["warmup"]["method"], figures["warmup"]["cut_requests"]) == ("mser5", 10)
    assert figures["warmup"]["settled"] is True
    nothing = made(rows(20, 0), end_s=30.0, warmup={"requests": 500}).summary()
    assert nothing["ttft_s"]["n"] == 0 and nothing["ttft_s"]["mean"] is None
    short = made(rows(30, 0), end_s=40.0, warmup="auto")
    assert short.summary()["warmup"]["settled"] is False and short.summary()["warmup"]["cut_requests"] == 0
    assert "no end of the start-up" in screen(short)


# Classes --------------------------------------------------------------------------------------------------------


def test_each_class_is_held_to_its_own_promise():
    served = rows(10, 4)
    for i, row in enumerate(served):
        row["class"] = i % 2
    result = made(served, end_s=20.0, class_slo={"code": {"ttft_s": 9.0, "attainment": 0.9}})
    figures = result.summary()
    # chat: TTFT <= 0.5 s, which nobody keeps; code: 9 s, which all do
    assert figures["attainment"] == 0.5
    assert figures["by_class"]["chat"]["attainment"] == 0.0 and figures["by_class"]["code"]["attainment"] == 1.0
    # ten requests settle nothing good
    code, chat = figures["by_class"]["code"]["slo"], figures["by_class"]["chat"]["slo"]
    assert (code["verdict"], code["met"]) == ("undecided", None) and (chat["verdict"], chat["met"]) == ("not_met", False)
    assert figures["by_class"]["code"]["requests"]["arrived"] == 5
    assert figures["by_class"]["chat"]["ttft_s"]["mean"] == pytest.approx((5 + 5 + 1 + 1 + 1) / 5)
    assert result.attainment().loc["code", "attainment"] == 1.0
    lines = screen(result).split("\n")
    assert [line for line in lines if line.startswith("chat ")] and [line for line in lines if line.startswith("code ")]


def test_a_class_without_a_promise_is_in_no_share():
    served = rows(10, 4)
    for i, row in enumerate(served):
        row["class"] = i % 2
    figures = made(served, end_s=20.0, slo={}, class_slo={"code": {"ttft_s": 2.0, "attainment": 0.9}}).summary()
    assert figures["attainment"] == 3 / 5 and figures["by_class"]["chat"]["attainment"] is None
    assert figures["slo"]["by_target"] == {"ttft_s": 3 / 5}


def test_tenants_are_told_apart():
    result = made(rows(6, 0), end_s=20.0)
    result.table.tenants = ("acme", "globex")
    result.table.tenant_id[:] = [0, 0, 1, 1, 1, 1]
    assert result.summary()["by_tenant"]["globex"]["requests"]["completed"] == 4
    assert result.ttft(by="tenant").loc["acme", "n"] == 2
    assert set(result.to_frame()["tenant"]) == {"acme", "globex"}


# The client side ------------------------------------------------------------------------------------------------


def test_late_sending_shows_both_clocks():
    result = made(rows(4, 0), end_s=10.0)
    result.table.intended_ns[:] = [0, 0, 0, 0]
    seen = result.summary()["clients"]
    assert seen["sent_late"] == 3 and seen["send_lag_s"]["mean"] == 1.5
    assert result.summary()["ttft_s"]["mean"] == 1.0 and seen["from_due"]["ttft_s"]["mean"] == 2.5
    assert seen["in_flight"] == {"mean": 12 / 6, "peak": 3}
    assert made(rows(4, 0), end_s=10.0).summary()["clients"]["send_lag_s"] is None


def test_a_time_out_is_a_miss_and_its_latency_a_lower_bound():
    result = made(rows(4, 0), end_s=10.0, slo={"e2e_s": 60.0, "attainment": 0.5})
    result.table.outcome[3], result.table.finish_ns[3] = Outcome.TIMED_OUT, UNSET
    result.table.gave_up_ns[3] = 13 * 10**9
    figures = result.summary()
    assert figures["requests"]["timed_out"] == 1 and figures["requests"]["unfinished"] == 0
    assert figures["attainment"] == 0.75 and figures["e2e_s"]["n"] == 3
    lost = figures["clients"]["censoring"]
    assert (lost["timed_out"], lost["share"], lost["before_first_token"]) == (1, 0.25, 0)
    assert lost["e2e_at_least_s"]["max"] == 10.0 and lost["e2e_at_least_s"]["p50"] == 3.0
    text = screen(result)
    assert "25 % timed out" in text and "1 of these timed out" in text


def test_overload_behind_a_cap_or_a_time_out_is_called_overload():
    base = {
        "workload": {"requests": 1500, "arrivals": {"process": "poisson", "rate": 40}, "lengths": {"prompt": 500, "output": 20}},
        "cost": STEADY,
        "engine": {"max_num_seqs": 16},
    }
    for clients in ({"max_in_flight": 24}, {"timeout": "5 s"}):
        scenario = {**base, "workload": {**base["workload"], "clients": clients}}
        assert simulate(from_mapping(scenario)).summary()["stability"]["verdict"] == "overloaded", clients
        calm = {**scenario, "workload": {**scenario["workload"], "arrivals": {"process": "poisson", "rate": 10}}}
        assert simulate(from_mapping(calm)).summary()["stability"]["verdict"] == "stable", clients


def test_the_suggested_cap_is_a_quotient_or_leaves_room_for_luck():
    pool = {"blocks": 101, "block_size": 16}
    alike, everybody = table(*[(0, 31, 2)] * 10), np.ones(10, dtype=bool)
    assert suggested_cap(alike, everybody, pool, 5)["max_num_seqs"] == 50  # 32 tokens with KV: 2 blocks
    assert suggested_cap(alike, everybody, pool, 0) is None and suggested_cap(alike, everybody, None, 5) is None
    mixed = table(*[(0, 16 * k, 1) for k in (1, 3)] * 5)
    cap = suggested_cap(mixed, everybody, pool, 5)["max_num_seqs"]
    # mean 2, standard deviation 1: 2 n + 2.326 sqrt(n) <= 100
    assert 2 * cap + 2.326 * cap**0.5 <= 100 < 2 * (cap + 1) + 2.326 * (cap + 1) ** 0.5


def test_a_result_knows_its_measured_part():
    result = replace(made(rows(20, 0), end_s=30.0), warmup={"requests": 5})
    assert result.arrived.sum() == 20 and result.measured.sum() == 15
    assert result.ttft().loc["chat", "n"] == 15


def test_a_closed_loop_is_stable_unless_its_clients_lose_patience():
    workload = {
        "requests": 400,
        "arrivals": {"process": "closed_loop", "clients": 40},
        "lengths": {"prompt": 500, "output": 20},
    }
    scenario = {"workload": workload, "cost": STEADY, "engine": {"max_num_seqs": 4}}
    patient = simulate(from_mapping(scenario)).summary()
    assert patient["stability"]["verdict"] == "stable" and "40 clients" in patient["stability"]["evidence"]
    scenario["workload"]["clients"] = {"timeout": "1 s"}
    hasty = simulate(from_mapping(scenario)).summary()
    assert hasty["stability"]["verdict"] == "overloaded" and "timed out" in hasty["stability"]["evidence"]
    assert hasty["clients"]["in_flight"]["mean"] <= hasty["clients"]["in_flight"]["peak"] <= 40
    assert hasty["throughput"]["requests_per_s"] == pytest.approx(
        hasty["requests"]["completed"] / hasty["duration"], rel=1e-9
    )


def test_urgent_classes_overtake_where_the_ordering_looks_at_priority():
    lengths = {"prompt": 500, "output": 20}
    scenario = {
        "workload": {
            "requests": 600,
            "arrivals": {"process": "poisson", "rate": 30},
            "classes": {
                "chat": {"share": 0.5, "lengths": lengths, "priority": 0},
                "batch": {"share": 0.5, "lengths": lengths, "priority": 5},
            },
        },
        "cost": STEADY,
        "engine": {"max_num_seqs": 8, "ordering": "priority"},
    }
    urgent = simulate(from_mapping(scenario)).summary()["by_class"]
    scenario["engine"]["ordering"] = "fcfs"
    alike = simulate(from_mapping(scenario)).summary()["by_class"]
    assert urgent["chat"]["wait_s"]["mean"] < 0.2 * urgent["batch"]["wait_s"]["mean"]
    assert alike["chat"]["wait_s"]["mean"] == pytest.approx(alike["batch"]["wait_s"]["mean"], rel=0.2)


def test_open_traffic_that_times_out_is_overloaded_though_nothing_piles_up():
    scenario = {
        "workload": {
            "requests": 300,
            "arrivals": {"process": "poisson", "rate": 10},
            "lengths": {"prompt": 500, "output": 200},
            "clients": {"timeout": 10},
        },
        "engine": {"max_num_seqs": 16},
        "cost": {"model": "affine", "base": 0.02, "per_prefill_token": 5e-5},
    }
    verdict = simulate(from_mapping(scenario)).summary()["stability"]
    assert verdict["verdict"] == "overloaded" and "timed out" in verdict["evidence"]
