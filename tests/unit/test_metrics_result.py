"""Metrics of a small table whose every figure follows by hand, and what a report does with nothing to report."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llmqsim import from_mapping, simulate
from llmqsim.caveats import Caveat
from llmqsim.metrics.waiting import WORDS
from llmqsim.records import GapHistogram, ReplicaUsage
from llmqsim.report.files import to_json, write_json, write_requests
from llmqsim.report.tables import screen
from llmqsim.requests import Outcome, Reason, RequestTable
from llmqsim.result import Result

S = 10**9
ROWS_CLASSES = ("chat", "code")
SLO = {"ttft_s": 0.5, "tpot_s": 0.1, "attainment": 0.5}


def made(rows: list[dict], usage=None, end_s: float = 10.0, **more) -> Result:
    """A result from rows of seconds and counts: arrival, prompt, output, and the marks of those that were served."""
    table = RequestTable.from_columns(
        classes=ROWS_CLASSES,
        arrival_ns=np.array([round(r["arrival"] * S) for r in rows], dtype=np.int64),
        prompt_tokens=np.array([r.get("prompt", 10) for r in rows], dtype=np.int64),
        output_tokens=np.array([r.get("output", 1) for r in rows], dtype=np.int64),
        max_tokens=np.array([r.get("output", 1) for r in rows], dtype=np.int64),
        class_id=np.array([r.get("class", 0) for r in rows], dtype=np.int64),
    )
    for i, row in enumerate(rows):
        for mark in ("first_scheduled", "first_token", "finish"):
            if mark in row:
                getattr(table, f"{mark}_ns")[i] = round(row[mark] * S)
        for wait, seconds in row.get("waits", {}).items():
            getattr(table, f"wait_{wait}_ns")[i] = round(seconds * S)
        table.replica[i] = row.get("replica", 0)
        table.preemptions[i] = row.get("preemptions", 0)
        if "finish" in row:
            table.outcome[i], table.generated_tokens[i] = Outcome.COMPLETED, row.get("output", 1)
        elif "reason" in row:
            table.outcome[i], table.reason[i] = Outcome.REJECTED, row["reason"]
    gaps = GapHistogram(2)
    if any(r.get("output", 1) > 1 and "finish" in r for r in rows):
        gaps.add(0, 100_000_000, 10)
    usage = (ReplicaUsage(requests=len(rows)),) if usage is None else usage
    return Result({}, 0, 0, "reference", "0", table, gaps, usage, round(end_s * S), **{"slo": SLO, **more})


ROWS = [
    # in time on both counts
    {"arrival": 0.0, "prompt": 100, "output": 11, "first_scheduled": 0.1, "first_token": 0.2, "finish": 1.2,
     "waits": {"slots": 0.1}},
    # one token: no TPOT, and no miss of the TPOT target
    {"arrival": 1.0, "prompt": 50, "output": 1, "first_scheduled": 1.1, "first_token": 1.5, "finish": 1.5, "class": 1,
     "waits": {"kv": 0.1}},
    # too slow between tokens
    {"arrival": 2.0, "prompt": 30, "output": 3, "first_scheduled": 2.0, "first_token": 2.1, "finish": 2.5,
     "preemptions": 2, "replica": 1, "waits": {"preempted": 0.2}},
    {"arrival": 3.0, "prompt": 999, "output": 1, "reason": Reason.EXCEEDS_KV_POOL, "replica": -1},
    {"arrival": 4.0, "prompt": 10, "output": 5, "first_scheduled": 4.0, "waits": {"step": 0.0}},
    # not yet here when the run ends
    {"arrival": 11.0},
]
USAGE = (
    ReplicaUsage(steps=10, busy_ns=4 * S, tokens=300, running_ns=6 * S, waiting_ns=S, kv_block_ns=20 * S, preemptions=2,
                 running_peak=2, waiting_peak=1, kv_blocks_peak=9, requests=3, padded_tokens=100, recomputed_tokens=7,
                 wasted_rows=3, end_ns=9 * S, outside={"decode batch": 1}),
    ReplicaUsage(steps=30, busy_ns=S, tokens=100, running_ns=S, requests=1, end_ns=2 * S),
)
KV = {"blocks": 11, "block_size": 16, "tokens": 176, "bytes_per_token": 1, "guaranteed_concurrency": 1.5}


@pytest.fixture
def figures():
    return made(ROWS, USAGE, kv=KV).summary()


def test_requests_are_conserved_and_counted_by_reason(figures):
    requests = figures["requests"]
    assert requests == {
        "arrived": 5, "completed": 3, "rejected": 1, "timed_out": 0, "unfinished": 1, "rejected_for": {"exceeds_kv_pool": 1},
    }
    assert requests["arrived"] == requests["completed"] + requests["rejected"] + requests["unfinished"]


def test_latencies_are_of_completed_requests(figures):
    assert figures["ttft_s"]["n"] == 3
    assert figures["ttft_s"]["mean"] == pytest.approx((0.2 + 0.5 + 0.1) / 3)
    assert figures["e2e_s"]["max"] == 1.2
    assert figures["wait_s"]["p50"] == 0.1
    # one-token requests have no TPOT: two values, 1.0/10 and 0.4/2
    assert figures["tpot_s"]["n"] == 2
    assert figures["tpot_s"]["mean"] == pytest.approx(0.15)
    assert figures["ntpot_s"]["mean"] == pytest.approx((1.2 / 11 + 0.5 + 0.5 / 3) / 3)
    assert figures["itl_s"]["mean"] == 0.1 and figures["itl_s"]["n"] == 10


def test_attainment_is_over_arrivals_and_one_token_requests_do_not_miss_tpot(figures):
    assert figures["attainment"] == 2 / 5
    # who waits for its first token is late for that, but may still keep its TPOT: it is in no share of TPOT alone
    assert figures["slo"]["by_target"] == {"ttft_s": 3 / 5, "tpot_s": 2 / 4}
    assert figures["slo"]["undecided"] == {"count": 0, "share": 0.0} and figures["slo"]["completed_share"] == 2 / 3
    assert figures["slo"]["met"] is False and figures["slo"]["verdict"] == "not_met" and figures["slo"]["target"] == 0.5
    assert figures["goodput_per_s"] == pytest.approx(2 / 10)


def test_a_latency_equal_to_its_target_meets_it():
    kept = made(ROWS[:2], slo={"ttft_s": 0.5, "tpot_s": 0.1, "attainment": 0.99}).summary()
    assert kept["attainment"] == 1.0
    # two requests settle nothing
    assert kept["slo"]["met"] is None and kept["slo"]["verdict"] == "undecided"
    assert kept["slo"]["why"] == "the run is unsettled"
    assert made(ROWS[:2], slo={"ttft_s": 0.499999999}).summary()["attainment"] == 0.5


def test_rates_are_over_the_makespan(figures):
    # an unfinished request stretches the window to the end of the run
    assert figures["duration"] == 10.0
    assert figures["throughput"]["requests_per_s"] == pytest.approx(0.3)
    assert figures["throughput"]["output_tokens_per_s"] == pytest.approx(1.5)
    assert figures["throughput"]["total_tokens_per_s"] == pytest.approx((180 + 15) / 10)
    assert made(ROWS[:3]).summary()["duration"] == 2.5


def test_usage(figures):
    used, kv = figures["utilisation"], figures["kv"]
    assert used["busy"] == pytest.approx(5 / 20) and used["per_replica"] == [0.4, 0.1]
    assert used["requests_per_replica"] == [3, 1]
    assert used["mean_step_s"] == pytest.approx(5 / 40)
    assert used["mean_batch"] == pytest.approx(7 / 5)
    assert used["tokens_per_step"] == 10.0 and used["padded_share"] == pytest.approx(100 / 500)
    assert kv["usable_tokens"] == 160
    assert kv["usage_mean"] == pytest.approx(20 / (10 * 10 * 2)) and kv["usage_peak"] == 0.9
    assert kv["sustained_concurrency"] == {"mean": pytest.approx(7 / 5), "peak": 2}
    assert kv["waiting"] == {"mean": pytest.approx(1 / 20), "peak": 1}
    assert (figures["preemptions"], figures["preempted_requests"]) == (2, 1)
    assert (figures["recomputed_tokens"], figures["wasted_rows"]) == (7, 3)
    assert figures["envelope"]["outside"] == {"decode batch": 1 / 40}


def test_waiting_is_shared_out_among_its_reasons(figures):
    waits = figures["waiting_for"]
    assert waits["largest"] == "preempted"
    assert waits["preempted"] == {"mean_s": pytest.approx(0.2 / 4), "share": pytest.approx(0.5)}
    assert sum(waits[name]["share"] for name in WORDS) == pytest.approx(1)


def test_the_names_of_vllm_bench_say_the_same(figures):
    assert figures["completed"] == 3
    assert (figures["total_input_tokens"], figures["total_output_tokens"]) == (180, 15)
    assert figures["request_throughput"] == figures["throughput"]["requests_per_s"]
    assert figures["request_goodput"] == figures["goodput_per_s"]
    for ours, theirs in (("ttft_s", "ttft"), ("tpot_s", "tpot"), ("itl_s", "itl"), ("e2e_s", "e2el")):
        assert figures[f"mean_{theirs}_ms"] == pytest.approx(figures[ours]["mean"] * 1e3)
        assert figures[f"median_{theirs}_ms"] == pytest.approx(figures[ours]["p50"] * 1e3)
        assert figures[f"p99_{theirs}_ms"] == pytest.approx(figures[ours]["p99"] * 1e3)
    assert figures["std_tpot_ms"] == pytest.approx(50.0)


def test_order_of_the_keys_is_fixed(figures):
    assert list(figures)[:12] == [
        "engine", "version", "seed", "replication", "requests", "ttft_s", "tpot_s", "ntpot_s", "itl_s", "e2e_s",
        "wait_s", "attainment",
    ]


def test_notes_name_thin_percentiles_unfinished_and_late_requests(figures):
    notes = " | ".join(figures["notes"])
    assert "1 of 5 requests did not finish" in notes and "1 of the workload's 6 requests had not arrived" in notes
    assert "p99 on the slowest 1" in notes
    many = [dict.fromkeys(("arrival", "first_scheduled", "first_token", "finish"), i / 10) for i in range(1000)]
    assert not [n for n in made(many, end_s=100).summary()["notes"] if "slowest" in n]


def test_frame_has_words_and_nan_for_what_never_happened():
    frame = made(ROWS).to_frame()
    assert list(frame["outcome"]) == ["completed"] * 3 + ["rejected", "unfinished", "unfinished"]
    assert frame["reason"][3] == "exceeds_kv_pool" and frame["class"][1] == "code"
    assert math.isnan(frame["finish_s"][4]) and math.isnan(frame["tpot_s"][1]) and math.isnan(frame["ttft_s"][3])
    assert frame["ttft_s"][1] == 0.5 and frame["tpot_s"][2] == pytest.approx(0.2)


def test_figures_by_class_and_by_replica():
    result = made(ROWS, USAGE)
    assert result.ttft(by="class").loc["code", "mean"] == 0.5
    assert result.tpot(by="replica").loc["1", "mean"] == pytest.approx(0.2)
    assert result.tpot().loc["code", "n"] == 0 and math.isnan(result.tpot().loc["code", "mean"])
    shares = result.attainment(by="class")
    assert shares.loc["chat", "attainment"] == 1 / 4 and shares.loc["code", "attainment"] == 1.0
    assert result.e2e().loc["chat", "max"] == 1.2
    with pytest.raises(ValueError, match="known: class, tenant, replica"):
        result.ttft(by="colour")


NOTHING_DONE = {
    "no arrivals": [],
    "all rejected": [ROWS[3]],
    "none finished": [ROWS[4]],
    "one token each": [{"arrival": 0, "first_scheduled": 0, "first_token": 1, "finish": 1}],
    "no time passes": [{"arrival": 0, "first_scheduled": 0, "first_token": 0, "finish": 0}],
}


@pytest.mark.parametrize("rows", NOTHING_DONE.values(), ids=NOTHING_DONE.keys())
@pytest.mark.parametrize("slo", [{}, SLO], ids=["no slo", "slo"])
def test_no_data_gives_no_nan_and_no_crash(rows, slo):
    result = made(rows, slo=slo)
    text = to_json(result.summary())
    assert "NaN" not in text and "Infinity" not in text
    assert json.loads(text)["stability"]["verdict"] == "unsettled"
    assert screen(result).startswith("UNSETTLED")
    assert len(result.to_frame()) == len(rows)


def test_screen_fits_and_says_the_verdict_first():
    long = "why " * 60
    notes = tuple(f"note {i} {long}" for i in range(30))
    scenario = {"question": long, "model": "m" * 80, "gpu": "g" * 50, "replicas": 8, "routing": "round_robin"}
    result = replace(made(ROWS, USAGE, kv=KV), notes=notes, scenario=scenario, envelope={"source": long})
    lines = screen(result).split("\n")
    assert max(map(len, lines)) <= 100 and len(lines) <= 32  # 25, were it not for the long names
    assert lines[0].startswith("UNSETTLED: ") and "1 did not" in " ".join(lines[:3])
    assert "34 more notes in the JSON" in lines[-1]
    assert "m" * 80 in lines[4] and " ".join(lines).count("why") > 60  # only the question is shortened


def test_notes_are_whole_or_counted():
    long = "why " * 40 + "not"
    result = replace(made(ROWS, USAGE, kv=KV), notes=(long, "another"))
    lines, notes = screen(result).split("\n"), result.summary()["notes"]
    shown = " ".join(lines)
    counted = int(lines[-1].split()[1]) if "more note" in lines[-1] else 0
    whole = [note for note in notes if f"note: {note}" in shown]
    assert "…" not in shown and len(whole) == shown.count("note: ") and len(whole) + counted == len(notes)


def test_what_makes_figures_err_stands_before_them():
    caveat = Caveat("architecture", "layers are taken for others, so that too few requests run at once")
    result = replace(made(ROWS, USAGE, kv=KV), caveats=(caveat,))
    lines = screen(result).split("\n")
    assert [i for i, line in enumerate(lines) if line == f"warning: {caveat.text}"] == [2]
    assert result.summary()["warnings"] == [{"code": "architecture", "text": caveat.text}]
    assert "warning" not in screen(made(ROWS, USAGE, kv=KV))


def test_screen_shows_what_was_waited_for_and_both_concurrencies():
    text = " ".join(screen(made(ROWS, USAGE, kv=KV)).split())
    assert "resuming after a preemption 50 % (50.0 ms)" in text
    assert "concurrency guaranteed 1.50, sustained 1.40 mean, 2 peak; 2 preemptions" in text
    assert "40 % of arrivals (asked for 50 %: not met); 66.6 % of those completed; TTFT ≤ 500 ms 60 %, TPOT ≤ 100 ms 50 %" in text
    assert "3 completed, 1 rejected (larger than the KV pool), 1 unfinished" in text


def test_files_are_the_same_twice_and_never_half_written(tmp_path):
    result = made(ROWS, USAGE, kv=KV)
    for name in ("a", "b"):
        write_json(result.summary(), tmp_path / f"{name}.json")
        write_requests(result, tmp_path / f"{name}.csv")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert (tmp_path / "a.csv").read_text().count("\n") == len(ROWS) + 1
    before = (tmp_path / "a.json").read_bytes()
    with pytest.raises(ValueError):
        write_json({"bad": float("nan")}, tmp_path / "a.json")
    assert (tmp_path / "a.json").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.json", "b.csv", "b.json"]


def test_the_documentation_names_every_column_and_figure(figures):
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    for name in made(ROWS).to_frame().columns:
        assert f"| `{name}` |" in page, name
    for name in (*figures["stability"], *figures["waiting_for"]):
        assert name in ("verdict", "evidence") or f"`{name}`" in page, name


def test_who_is_refused_after_the_clock_was_stopped_has_not_arrived():
    scenario = {
        "workload": {"arrivals": {"process": "constant", "rate": 1}, "requests": 8},
        "engine": {"max_model_len": 11},
        "cost": {"model": "constant", "step": 0.5},
    }
    scenario["workload"]["lengths"] = {"prompt": {"uniform": [10, 12]}, "output": 1}
    whole = simulate(from_mapping(scenario)).summary()["requests"]
    assert whole["arrived"] == 8 and whole["rejected"] > 1
    stopped = simulate(from_mapping({**scenario, "run": {"until": 3.2}})).summary()["requests"]
    assert stopped["arrived"] == 3
