"""Sentences for the reader: what limits the figures, and what would be better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmqsim.metrics.warmup import restarts_with_a_burst
from llmqsim.requests import WAITS

if TYPE_CHECKING:
    from llmqsim.result import Result

BEHIND_A_PERCENTILE = 10
"""a percentile that rests on fewer requests than this is named in the notes"""

MOST_WITHOUT_A_QUEUE = 0.01
"""share of requests that wait for more than the next step, up to which there was no queue"""


def notes(
    result: Result, requests: dict[str, Any], slo: dict[str, Any], kv: dict[str, Any], starvation: dict[str, Any]
) -> list[str]:
    """What limits the figures (start-up, requests without an answer, thin percentiles), and the run's own notes."""
    said = [*_starved(starvation), *_no_queue(result), *_start(result), *_cap(kv), *result.notes]
    done, unfinished = requests["completed"], requests["unfinished"]
    if requests["timed_out"]:
        said.append(f"{requests['timed_out']} of {requests['arrived']} requests timed out: latencies are of survivors")
    if unfinished:
        arrived = requests["arrived"]
        said.append(f"{unfinished} of {arrived} requests did not finish: latencies leave them out{_attained(slo)}")
    unborn = len(result.table) - requests["arrived"]
    if unborn:
        said.append(f"{unborn} of the workload's {len(result.table)} requests had not arrived when the run ended")
    thin = [(p, done * (100 - p) / 100) for p in (99, 95, 90) if done * (100 - p) < BEHIND_A_PERCENTILE * 100]
    if done and thin:
        held = ", ".join(f"p{p} on {'the slowest ' if p == 99 else ''}{max(1, round(behind))}" for p, behind in thin)
        said.append(f"few requests: of {done} completed, {held}")
    return said


def _attained(slo: dict[str, Any]) -> str:
    """What attainment does with those who did not finish, where anything was promised."""
    if slo["target"] is None:
        return ""
    early = slo["undecided"]["count"]
    if not early:
        return "; all are late already, so attainment counts them as misses"
    return f"; attainment leaves out the {early} that are not late yet, and counts the others as misses"


def _starved(starvation: dict[str, Any]) -> list[str]:
    """Who was left behind, by size, where anybody was."""
    if not starvation["starved"]:
        return []
    sizes = [(name, part) for name, part in starvation["longest_wait"].items() if part["starved"]]
    each = "; ".join(f"{name} tokens: {part['starved']:,}, up to {part['longest_s']:,.3g} s" for name, part in sizes)
    return [f"starved, without a token for more than ten times the mean E2E, by size: {each}"]


def _no_queue(result: Result) -> list[str]:
    """An ordering has nothing to do where hardly anybody waits for more than the next step."""
    policy = ((result.scenario.get("engine") or {}).get("ordering") or {}).get("policy", "fcfs")
    table, rows = result.table, result.measured
    if policy == "fcfs" or not rows.any():
        return []
    kept = sum(getattr(table, name) for name in WAITS if name != "wait_step_ns") > 0
    waited = int((kept & rows).sum())
    if waited > MOST_WITHOUT_A_QUEUE * int(rows.sum()):
        return []
    return [f"no queue to reorder for '{policy}': {waited} of {int(rows.sum())} requests waited for more than the next step"]


def _start(result: Result) -> list[str]:
    """What the start of the measured part does to the figures."""
    said = []
    cut = result.cut
    if cut is not None and cut.settled is False:
        said.append(f"MSER-5 finds no end of the start-up ({cut.series.upper()}) in the first half: nothing was cut")
    together = restarts_with_a_burst(result.table, result.measured)
    if together and cut is not None and cut.rows.any():
        said.append(f"the warm-up is no cure: then {together} clients start together on an empty system, a new burst")
    elif together:
        burst = f"{together} clients start together on an empty system"
        said.append(f"{burst}: the figures hold that burst; see run.warmup")
    return said


def _cap(kv: dict[str, Any]) -> list[str]:
    """The cap in a sentence, where it would have bound."""
    cap, peak = kv["suggested_cap"], kv["sustained_concurrency"]["peak"]
    if cap is None or peak is None or peak <= cap["max_num_seqs"]:
        return []
    return [f"max_num_seqs {cap['max_num_seqs']} fits without preemption, assuming {cap['assumes']}"]
