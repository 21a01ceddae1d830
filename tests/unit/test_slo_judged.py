"""Who kept an SLO: judged again in plain Python from the table of requests, and by hand where each rule shows alone."""

from __future__ import annotations

import csv
import random

import numpy as np
import pytest

from llmqsim import from_mapping, simulate
from llmqsim.metrics import slo
from llmqsim.metrics.usage import Window, utilisation
from llmqsim.planner.attain import BROKEN, KEPT, OPEN, judge, of_one_run
from llmqsim.records import ReplicaUsage
from llmqsim.report.files import write_requests
from llmqsim.report.parts import busy
from llmqsim.report.tables import screen
from llmqsim.requests import Outcome
from tests.unit.test_metrics_result import S, made

COST = {"model": "affine", "base": "8 ms", "per_prefill_token": "100 us", "per_decode_request": "1 ms"}


def drawn(seed: int) -> dict:
    """A scenario with some of: a client's cap, a time-out, retries, a cut, a warm-up, classes, counting from sending."""
    draw = random.Random(seed)
    targets = draw.sample(["ttft", "tpot", "e2e"], draw.randint(1, 3))
    limits = {"ttft": f"{draw.choice([50, 200, 900])} ms", "tpot": f"{draw.choice([12, 18, 30])} ms", "e2e": f"{draw.choice([1, 3])} s"}
    promise = {target: limits[target] for target in targets} | {"attainment": draw.choice([0.5, 0.9])}
    if draw.random() < 0.4:
        promise["counted_from"] = "sent"
    clients = {}
    if draw.random() < 0.6:
        clients["max_in_flight"] = draw.choice([3, 10])
    if draw.random() < 0.4:
        clients["timeout"] = "2 s"
    workload = {
        "requests": 250,
        "arrivals": {"process": "poisson", "rate": draw.choice([5, 15, 30])},
        "lengths": {"prompt": {"lognormal": {"mean": 200, "cv": 1}}, "output": {"lognormal": {"mean": 40, "cv": 1}}},
    }
    if clients:
        workload["clients"] = clients
    if draw.random() < 0.4:
        workload["classes"] = {"a": {"share": 0.5}, "b": {"share": 0.5, "slo": {"e2e": "2 s", "attainment": 0.8}}}
    run = {"seed": seed}
    if draw.random() < 0.7:
        run["until"] = f"{draw.choice([3, 8])} s"
    if draw.random() < 0.3:
        run["warmup"] = {"requests": 20}
    return {
        "workload": workload, "cost": COST, "slo": promise, "run": run,
        "engine": {"preset": "vllm-0.19", "max_num_seqs": draw.choice([4, 32]), "num_gpu_blocks_override": 2000, "max_model_len": 8192},
    }  # fmt: skip


def again(path: str, scenario: dict, end_s: float) -> tuple[int, int, int]:
    """Met, missed and undecided, row by row from the CSV: the rules of docs/metrics.md and nothing of the package."""
    met = missed = undecided = 0
    seconds = {"ms": 1e-3, "s": 1.0}

    def limit(text: str) -> float:
        number, unit = text.split()
        return float(number) * seconds[unit]

    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    sent = sorted((float(r["arrival_s"]), i) for i, r in enumerate(rows) if r["arrival_s"])
    warmup = scenario["run"].get("warmup", {}).get("requests", 0)
    left_out = {i for _, i in sent[:warmup]}
    for i, row in enumerate(rows):
        promise = scenario["slo"]
        if row["class"] == "b":
            promise = scenario["workload"]["classes"]["b"]["slo"]
        due = row["arrival_s"] if promise.get("counted_from") == "sent" else row["intended_s"]
        if i in left_out or not due or float(due) > end_s:
            continue
        start = float(due)
        first = float(row["first_token_s"]) if row["first_token_s"] else None
        last = float(row["finish_s"]) if row["finish_s"] else None
        if row["outcome"] in ("rejected", "timed_out"):
            missed += 1
        elif row["outcome"] == "completed":
            tokens = int(row["generated_tokens"])
            kept = [
                "ttft" not in promise or first - start <= limit(promise["ttft"]) + 1e-12,
                "e2e" not in promise or last - start <= limit(promise["e2e"]) + 1e-12,
                "tpot" not in promise or tokens < 2 or (last - first) / (tokens - 1) <= limit(promise["tpot"]) + 1e-12,
            ]
            met, missed = met + all(kept), missed + (not all(kept))
        else:
            late = "ttft" in promise and (end_s if first is None else first) - start > limit(promise["ttft"])
            late = late or "e2e" in promise and end_s - start > limit(promise["e2e"])
            if "tpot" in promise and first is not None:
                late = late or (end_s - first) / (int(row["output_tokens"]) - 1) > limit(promise["tpot"])
            missed, undecided = missed + late, undecided + (not late)
    return met, missed, undecided


@pytest.mark.parametrize("seed", range(25))
def test_attainment_is_what_the_table_of_requests_says(seed, tmp_path):
    """Against an independent count from the CSV: caps, time-outs, cuts, warm-up, classes, counted from due or sent."""
    given = drawn(seed)
    result = simulate(from_mapping(given))
    path = str(tmp_path / "requests.csv")
    write_requests(result, path)
    met, missed, undecided = again(path, given, result.end_ns / 1e9)
    told = result.summary()
    assert told["attainment"] == (met / (met + missed) if met + missed else None)
    assert told["slo"]["undecided"]["count"] == undecided
    if told["slo"]["verdict"] == "met":
        assert told["stability"]["verdict"] == "stable" and undecided <= 0.02 * (met + missed + undecided)


def test_the_drawn_scenarios_have_all_that_they_are_about():
    """Else the test above could not fail: late sending, undecided requests, misses under way, time-outs, both clocks."""
    seen = {"sent late": 0, "undecided": 0, "late under way": 0, "timed out": 0, "held at the end": 0}
    for seed in range(25):
        result = simulate(from_mapping(drawn(seed)))
        standing, table = slo.stand_all(result), result.table
        seen["sent late"] += int((table.arrival_ns > table.intended_ns).sum())
        seen["undecided"] += int(standing.undecided.sum())
        seen["late under way"] += int((standing.asked & (table.outcome == Outcome.UNFINISHED)).sum())
        seen["timed out"] += int((table.outcome == Outcome.TIMED_OUT).sum())
        seen["held at the end"] += int((result.due & ~result.arrived).sum())
    assert all(count > 20 for count in seen.values()), seen


def under_way(**marks) -> dict:
    """One request due at 0 that is under way at 10 s, with 11 output tokens."""
    return {"arrival": 0.0, "output": 11, **marks}


@pytest.mark.parametrize(
    ("promise", "marks", "undecided"),
    [
        ({"ttft_s": 10.0}, {}, 1),  # its first token may come in this instant
        ({"ttft_s": 9.9}, {}, 0),
        ({"ttft_s": 9.9}, {"first_token": 9.9}, 1),  # in time, but it may still time out
        ({"e2e_s": 10.0}, {"first_token": 1.0}, 1),
        ({"e2e_s": 9.9}, {"first_token": 1.0}, 0),
        ({"tpot_s": 0.9}, {"first_token": 1.0}, 1),  # ten gaps in 9 s at best
        ({"tpot_s": 0.89}, {"first_token": 1.0}, 0),
        ({"tpot_s": 0.01}, {}, 1),  # no token yet: nothing is known of its gaps
        ({"ttft_s": 9.9, "tpot_s": 0.01}, {}, 0),
    ],
)
def test_who_is_under_way_is_late_when_a_target_is_broken_already(promise, marks, undecided):
    """By hand: the clock stops at 10 s."""
    told = made([under_way(**marks)], slo={**promise, "attainment": 0.5}).summary()
    assert told["slo"]["undecided"]["count"] == undecided
    assert told["attainment"] == (None if undecided else 0.0)
    assert told["slo"]["verdict"] == ("undecided" if undecided else "not_met")


def standing(met: int, missed: int, undecided: int) -> slo.Standing:
    """Counts as masks."""
    kinds = np.repeat([0, 1, 2], [met, missed, undecided])
    return slo.Standing(kinds == 0, kinds != 2, kinds == 2, kinds != 2)


@pytest.mark.parametrize(
    ("counts", "stability", "verdict"),
    [
        ((950, 50, 0), "stable", "met"),
        ((949, 51, 0), "stable", "not_met"),
        ((950, 50, 0), "unsettled", "undecided"),
        ((950, 50, 0), "overloaded", "undecided"),
        ((100, 900, 0), "overloaded", "not_met"),
        ((950, 50, 20), "stable", "met"),  # 1.96 %
        ((950, 50, 21), "stable", "undecided"),  # 2.06 %
        ((900, 100, 30), "stable", "not_met"),  # even with all of them: 90.3 %
        ((940, 60, 500), "stable", "undecided"),
        ((0, 0, 5), "stable", "undecided"),
        ((0, 0, 0), "stable", None),
    ],
)
def test_the_verdict_needs_a_settled_run_and_few_undecided(counts, stability, verdict):
    assert slo.verdict_of(standing(*counts), 0.95, stability)[0] == verdict


@pytest.mark.parametrize(
    ("met", "asked", "undecided", "verdict"),
    [(9900, 10_000, 0, KEPT), (9900, 10_000, 300, OPEN), (5000, 10_000, 300, BROKEN), (9450, 10_000, 1000, OPEN)],
)
def test_intervals_are_judged_with_the_undecided_in_mind(met, asked, undecided, verdict):
    found = of_one_run(np.random.default_rng(0).permutation(np.arange(asked) < met))
    assert judge(found, 0.95, met, asked, undecided)[0] == verdict


SENT_LATE = {
    "workload": {
        "requests": 400, "arrivals": {"process": "constant", "rate": "20 req/s"},
        "lengths": {"prompt": 100, "output": 20}, "clients": {"max_in_flight": 1},
    },
    "cost": COST, "slo": {"ttft": "200 ms", "attainment": 0.9},
}  # fmt: skip


def test_behind_a_cap_requests_sent_late_are_late():
    """One at a time takes 18 ms + 19 x 9 ms = 189 ms, 20 a second are due: the n-th is sent at n x 189 ms, so after a
    few requests none is in time by the clock of who waits, and all are by that of the client."""
    due = simulate(from_mapping(SENT_LATE)).summary()
    sent = simulate(from_mapping({**SENT_LATE, "slo": {**SENT_LATE["slo"], "counted_from": "sent"}})).summary()
    assert sent["attainment"] == 1.0 and due["attainment"] < 0.01
    assert due["ttft_s"] == sent["ttft_s"], "latencies count from sending"
    assert due["goodput_per_s"] < 0.01 * sent["goodput_per_s"]
    assert due["slo"]["verdict"] == "not_met" and sent["slo"]["verdict"] == "undecided", "the backlog grows at the client"
    assert "counted from when they were due" in " ".join(screen(simulate(from_mapping(SENT_LATE))).split())


def test_a_run_that_did_not_settle_never_says_met():
    few = {**SENT_LATE, "workload": {**SENT_LATE["workload"], "requests": 60, "arrivals": {"process": "poisson", "rate": 1}}}
    result = simulate(from_mapping(few))
    assert result.summary()["attainment"] > 0.9
    text = " ".join(screen(result).split())
    assert text.startswith("UNSETTLED") and "undecided: the run is unsettled" in text and ": met" not in text


def test_the_drain_of_an_overloaded_run_is_not_idle_time():
    """By hand: requests come from 0 to 10 s; one replica works from 0 to 20 s, the other from 0 to 12 s and from then
    on for nobody; a third works 4 s of the ten and has nothing left at the end."""
    usage = [
        ReplicaUsage(steps=1, busy_ns=20 * S, end_ns=20 * S),
        ReplicaUsage(steps=1, busy_ns=12 * S, end_ns=12 * S),
        ReplicaUsage(steps=1, busy_ns=4 * S, end_ns=9 * S),
    ]
    used = utilisation(usage, Window(0, 20 * S), Window(0, 10 * S))
    assert used["busy"] == pytest.approx(36 / 60) and used["busy_while_arriving"] == pytest.approx(24 / 30)
    assert busy(used, " of the time") == "80 % of the time while requests arrive (60 % with the drain)"
    cut = [ReplicaUsage(steps=1, busy_ns=15 * S, end_ns=8 * S, cut_ns=7 * S)]
    assert utilisation(cut, Window(0, 15 * S), Window(0, 10 * S))["busy_while_arriving"] == 1.0, "cut off in a step"
    assert utilisation(usage, Window(0, 20 * S), Window(0, 0))["busy_while_arriving"] is None, "all come at once"
