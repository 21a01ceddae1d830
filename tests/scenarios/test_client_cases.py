"""User cases about clients and warm-up, each through the normal report: the JSON of `llmqsim run` and its screen."""

from __future__ import annotations

from functools import cache

import pytest

from llmqsim import from_mapping, simulate
from llmqsim.report.tables import render, screen
from tests.scenarios.test_user_cases import run_json

# S05 ------------------------------------------------------------------------------------------------------------


def closed_loop(**run) -> dict:
    return {
        "workload": {
            "requests": 160,
            "arrivals": {"process": "closed_loop", "clients": 16},
            "lengths": {"prompt": 500, "output": 101},
        },
        "cost": {"model": "stations", "prefill": "0.1 s", "decode": "10 s"},
        "run": run,
    }


def test_s05_the_first_sixteen_queue_and_all_later_ones_do_not():
    frame = simulate(from_mapping(closed_loop())).to_frame()
    assert frame["ttft_s"].tolist() == pytest.approx([0.1 * (i + 1) for i in range(16)] + [0.1] * 144, abs=1e-9)


@pytest.mark.parametrize(("warmup", "cut"), [({"requests": 16}, 16), ("auto", 20), ({"time": "10 s"}, 16)])
def test_s05_a_warm_up_declared_or_detected_shows_both_values(tmp_path, warmup, cut):
    summary = run_json(tmp_path, closed_loop(warmup=warmup))
    assert summary["warmup"]["cut_requests"] == cut
    assert summary["warmup"]["cut_s"] == pytest.approx(10.1 + 0.1 * (cut - 16), abs=1e-9)
    assert summary["warmup"]["all"]["ttft_s"]["p99"] == pytest.approx(1.44, abs=0.005)
    assert summary["ttft_s"]["p99"] == summary["ttft_s"]["mean"] == 0.1
    assert summary["ttft_s"]["n"] == 160 - cut and summary["requests"]["completed"] == 160
    text = screen(simulate(from_mapping(closed_loop(warmup=warmup))))
    assert f"cut {cut} requests" in text and "1.44 s" in text and "100 ms" in text
    assert "empty system" not in text


def test_s05_without_a_cut_the_report_says_that_the_figures_hold_the_burst(tmp_path):
    summary = run_json(tmp_path, closed_loop())
    assert summary["warmup"] is None
    assert summary["ttft_s"]["p99"] == pytest.approx(1.44, abs=0.005)
    assert any("16 clients start together on an empty system" in note for note in summary["notes"])


def test_s05_draining_after_a_warm_up_is_no_cure_and_the_report_says_so(tmp_path):
    summary = run_json(tmp_path, closed_loop(warmup={"requests": 32, "drain": True}))
    assert summary["warmup"]["cut_requests"] == 32 and summary["warmup"]["starts_empty"]
    assert summary["ttft_s"]["max"] == pytest.approx(1.6, abs=1e-9), "the burst again"
    assert any("no cure" in note for note in summary["notes"])
    assert "no cure" in screen(simulate(from_mapping(closed_loop(warmup={"requests": 32, "drain": True}))))


def test_s05_a_ramp_is_a_cure():
    scenario = closed_loop()
    scenario["workload"]["arrivals"]["ramp_up"] = "10 s"
    summary = simulate(from_mapping(scenario)).summary()
    assert summary["ttft_s"]["max"] == 0.1
    assert not any("empty system" in note for note in summary["notes"])


# S13 ------------------------------------------------------------------------------------------------------------


@cache
def crowd(max_num_seqs: int, requests: int) -> dict:
    """The figures of the report."""
    scenario = {
        "workload": {
            "requests": requests,
            "arrivals": {"process": "closed_loop", "clients": 256},
            "lengths": {"prompt": 900, "output": 340},
        },
        "cost": {"model": "affine", "base": "8 ms", "per_prefill_token": "50 us", "per_decode_request": "0.1 ms"},
        "engine": {"max_num_seqs": max_num_seqs, "num_gpu_blocks_override": 77_088 // 16, "scheduler_reserve_full_isl": False},
    }
    return simulate(from_mapping(scenario)).summary()


def test_s13_256_clients_for_a_pool_that_holds_72():
    everybody, capped = crowd(256, 2000), crowd(60, 2000)
    assert everybody["kv"]["tokens"] == 77_088
    assert 65 <= everybody["kv"]["sustained_concurrency"]["mean"] <= 85
    # 256 less those who run; the mean over the run includes the end, when clients have nothing left to send
    assert 168 <= everybody["kv"]["waiting"]["mean"] <= 192
    assert everybody["clients"]["in_flight"]["peak"] == 256
    assert everybody["preemptions"] > 0.05 * 2000
    assert capped["preemptions"] == 0
    assert capped["throughput"]["output_tokens_per_s"] >= everybody["throughput"]["output_tokens_per_s"]
    assert capped["waiting_for"]["largest"] == "slots" and capped["kv"]["waiting"]["mean"] > 168


def test_s13_at_full_size_and_with_the_cap_of_the_case():
    """5,000 requests, through the same report: some 72 run and 184 wait; no preemption with 60 slots.

    The case saw 480 preemptions, and asks for well above zero: how many there are is up to the cost of steps.
    """
    everybody, capped = crowd(256, 5000), crowd(60, 5000)
    running = everybody["kv"]["sustained_concurrency"]["mean"]
    assert 65 <= running <= 85
    assert everybody["kv"]["waiting"]["mean"] == pytest.approx(256 - running, rel=0.05)
    assert everybody["preemptions"] >= 480
    assert everybody["requests"]["completed"] == capped["requests"]["completed"] == 5000
    assert capped["preemptions"] == 0 and capped["kv"]["sustained_concurrency"]["peak"] == 60
    assert capped["throughput"]["output_tokens_per_s"] >= everybody["throughput"]["output_tokens_per_s"]
    assert capped["waiting_for"]["largest"] == "slots" and capped["waiting_for"]["kv"]["mean_s"] == 0
    # what the wait for memory was is now a wait in a queue that everybody can see
    assert capped["kv"]["waiting"]["mean"] == pytest.approx(256 - 60, rel=0.05)


def test_s13_the_tool_suggests_the_cap_and_says_what_it_assumed():
    everybody = crowd(256, 2000)
    cap = everybody["kv"]["suggested_cap"]
    # 4,817 usable blocks, 78 blocks for 1,240 tokens
    assert cap["max_num_seqs"] == 61 and "1,240 tokens" in cap["assumes"]
    text = render(everybody)
    assert "max_num_seqs 61" in text and "1,240 tokens a request" in text
    assert crowd(61, 600)["preemptions"] == 0
    assert crowd(60, 2000)["kv"]["suggested_cap"] is None
