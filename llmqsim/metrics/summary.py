"""Every figure of a run in one mapping, in a fixed order: what the JSON holds and the screen shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmqsim.metrics import latency, slo, usage
from llmqsim.metrics.distribution import NS_PER_S, ratio
from llmqsim.metrics.stability import stability
from llmqsim.metrics.waiting import waiting_for
from llmqsim.requests import Outcome, Reason

if TYPE_CHECKING:
    from llmqsim.result import Result

BEHIND_A_PERCENTILE = 10
"""a percentile that rests on fewer requests than this is named in the notes"""


def _requests(result: Result) -> dict[str, Any]:
    table, arrived = result.table, result.arrived
    rejected = arrived & (table.outcome == Outcome.REJECTED)
    reasons = {r.name.lower(): int((rejected & (table.reason == r)).sum()) for r in Reason if r is not Reason.NONE}
    return {
        "arrived": int(arrived.sum()),
        "completed": int(latency.completed(table).sum()),
        "rejected": int(rejected.sum()),
        "unfinished": int((arrived & (table.outcome == Outcome.UNFINISHED)).sum()),
        "rejected_for": {name: count for name, count in reasons.items() if count},
    }


def notes(result: Result, requests: dict[str, Any]) -> list[str]:
    """The run's own notes, then what limits the figures: unfinished requests, thin percentiles, late arrivals."""
    said = list(result.notes)
    done, unfinished = requests["completed"], requests["unfinished"]
    if unfinished:
        arrived = requests["arrived"]
        said.append(f"{unfinished} of {arrived} requests did not finish: latencies leave them out, attainment doesn't")
    unborn = len(result.table) - requests["arrived"]
    if unborn:
        said.append(f"{unborn} of the workload's {len(result.table)} requests had not arrived when the run ended")
    thin = [(p, done * (100 - p) / 100) for p in (99, 95, 90) if done * (100 - p) < BEHIND_A_PERCENTILE * 100]
    if done and thin:
        held = ", ".join(f"p{p} on the slowest {max(1, round(behind))}" for p, behind in thin)
        said.append(f"few requests: of {done} completed, {held}")
    return said


def _bench(table, window: usage.Window, throughput: dict, goodput: float | None) -> dict[str, Any]:
    """Counts and rates under the names of vLLM's serving benchmark."""
    done = latency.completed(table)
    return {
        "completed": int(done.sum()),
        "duration": window.seconds,
        "total_input_tokens": int(table.prompt_tokens[done].sum()),
        "total_output_tokens": int(table.generated_tokens[done].sum()),
        "request_throughput": throughput["requests_per_s"],
        "request_goodput": goodput,
        "output_throughput": throughput["output_tokens_per_s"],
        "total_token_throughput": throughput["total_tokens_per_s"],
    }


def summarise(result: Result) -> dict[str, Any]:
    """All figures of a result as plain data (dict, list, str, int, finite float, bool, None), in a fixed order."""
    table, arrived = result.table, result.arrived
    window = usage.makespan(table, arrived, result.end_ns)
    requests = _requests(result)
    figures = latency.latencies(table, result.gaps)
    has_slo = bool(slo.targets_of(result.slo))
    goodput = ratio(int(slo.meets_all(table, result.slo).sum()), window.seconds) if has_slo else None
    throughput = usage.throughput(table, window)
    return {
        "engine": result.engine,
        "version": result.version,
        "seed": result.seed,
        "replication": result.replication,
        "requests": requests,
        **figures,
        "attainment": slo.attainment(table, result.slo, arrived),
        "slo": slo.report(table, result.slo, arrived),
        "goodput_per_s": goodput,
        "throughput": throughput,
        "utilisation": usage.utilisation(result.usage, window),
        "kv": usage.kv(result.usage, window, result.kv),
        "preemptions": sum(u.preemptions for u in result.usage),
        "preempted_requests": int((table.preemptions > 0).sum()),
        "recomputed_tokens": sum(u.recomputed_tokens for u in result.usage),
        "prefix_cache": usage.prefix_cache(table, result.usage),
        "swap": {
            "copied_blocks": sum(u.swapped_blocks for u in result.usage),
            "refused": sum(u.swap_refused for u in result.usage),
        },
        "wasted_rows": sum(u.wasted_rows for u in result.usage),
        "waiting_for": waiting_for(table, arrived & (table.outcome != Outcome.REJECTED)),
        "stability": stability(table, arrived),
        "envelope": {**result.envelope, "outside": usage.outside(result.usage)},
        "end_s": result.end_ns / NS_PER_S,
        "scenario": result.scenario,
        "notes": notes(result, requests),
        **_bench(table, window, throughput, goodput),
        **latency.bench_names(table, result.gaps, figures),
    }
