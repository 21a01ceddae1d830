"""Every figure of a run in one mapping, in a fixed order: what the JSON holds and the screen shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from llmqsim.metrics import groups, latency, pools, slo, usage
from llmqsim.metrics.clients import clients
from llmqsim.metrics.distribution import NS_PER_S, ratio, std_ns
from llmqsim.metrics.kv_cap import suggested_cap
from llmqsim.metrics.notes import notes
from llmqsim.metrics.prediction import prediction
from llmqsim.metrics.routing import routing
from llmqsim.metrics.stability import of_run
from llmqsim.metrics.starvation import starvation
from llmqsim.metrics.waiting import waiting_for
from llmqsim.metrics.warmup import restarts_with_a_burst
from llmqsim.requests import Outcome

if TYPE_CHECKING:
    from llmqsim.result import Result


def _requests(result: Result) -> dict[str, Any]:
    table, arrived = result.table, result.arrived
    return {**groups.counts(table, arrived), "completed": int(latency.completed(table).sum())}


def _kv(result: Result, whole: usage.Window, preemptions: int) -> dict[str, Any]:
    """The pool, its use, and the cap that would spare it preemptions."""
    table, served = result.table, result.arrived & (result.table.outcome != Outcome.REJECTED)
    pool = pools.answering(result)
    return {
        **usage.kv(pools.usage_of(result, pool), whole, result.kv),
        **({} if pool is None else {"pool": pool["name"]}),
        "suggested_cap": suggested_cap(table, served, result.kv, preemptions),
    }


def _warmup(result: Result) -> dict[str, Any] | None:
    """How much was cut, how it was found, and the figures as they were with it; None where nothing was asked for."""
    cut = result.cut
    if cut is None:
        return None
    table, arrived = result.table, result.arrived
    window = usage.makespan(table, arrived, result.end_ns)
    figures = latency.latencies(table, result.gaps, arrived)
    del figures["itl_s"]
    return {
        "method": cut.method,
        "settled": cut.settled,
        "series": cut.series,
        "cut_requests": int(cut.rows.sum()),
        "cut_s": (cut.until_ns - window.start_ns) / NS_PER_S if cut.rows.any() else 0.0,
        "share": ratio(int(cut.rows.sum()), int(arrived.sum())),
        "starts_empty": restarts_with_a_burst(table, result.measured) > 0,
        "all": {
            **figures,
            "attainment": slo.stand_all(result, result.due).share,
            "throughput": usage.throughput(table, arrived, window),
        },
    }


def _waste(result: Result, preemptions: int) -> dict[str, Any]:
    """What was computed again, moved, spared by the cache, or computed for nobody."""
    return {
        "preemptions": preemptions,
        "preempted_requests": int((result.table.preemptions > 0).sum()),
        "recomputed_tokens": sum(u.recomputed_tokens for u in result.usage),
        "prefix_cache": usage.prefix_cache(result.table, result.usage),
        "swap": {
            "copied_blocks": sum(u.swapped_blocks for u in result.usage),
            "refused": sum(u.swap_refused for u in result.usage),
        },
        "aborted_tokens": sum(u.aborted_tokens for u in result.usage),
        "wasted_rows": sum(u.wasted_rows for u in result.usage),
    }


def _bench(table, rows: np.ndarray, window: usage.Window, throughput: dict, goodput: float | None) -> dict[str, Any]:
    """Counts and rates under the names of vLLM's serving benchmark."""
    done = latency.completed(table) & rows
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


def _pools(result: Result, whole: usage.Window) -> dict[str, Any]:
    """What only runs with pools have."""
    if not result.pools:
        return {}
    return {"pools": pools.by_pool(result, whole), "handoff": pools.handoff(result, result.measured, whole)}


def summarise(result: Result) -> dict[str, Any]:
    """All figures of a result as plain data (dict, list, str, int, finite float, bool, None), in a fixed order."""
    table, arrived, measured = result.table, result.arrived, result.measured
    whole = usage.makespan(table, arrived, result.end_ns)
    window = usage.makespan(table, measured, result.end_ns)
    requests = _requests(result)
    seen = latency.samples(table, measured)
    figures = latency.figures_of(seen, result.gaps)
    settled = of_run(result)
    promised = slo.report(result, result.promised, result.slo, settled["verdict"])
    goodput = groups.goodput(result, arrived, window)
    throughput = usage.throughput(table, arrived, window)
    preemptions = sum(u.preemptions for u in result.usage)
    kv = _kv(result, whole, preemptions)
    served = measured & (table.outcome != Outcome.REJECTED)
    starved = starvation(table, served, result.end_ns)
    return {
        "engine": result.engine,
        "version": result.version,
        "seed": result.seed,
        "replication": result.replication,
        "requests": requests,
        **figures,
        "attainment": slo.stand_all(result).share,
        "slo": promised,
        "goodput_per_s": goodput,
        "throughput": throughput,
        "by_class": groups.by_class(result, settled["verdict"]),
        "by_tenant": groups.by_tenant(result, settled["verdict"]),
        "clients": clients(table, measured, whole),
        "warmup": _warmup(result),
        "utilisation": usage.utilisation(result.usage, whole, usage.arriving(table, arrived)),
        "routing": routing(table, served, len(result.usage)),
        "kv": kv,
        **_pools(result, whole),
        **_waste(result, preemptions),
        "waiting_for": waiting_for(table, served),
        "starvation": starved,
        "prediction": prediction(table, served),
        "stability": settled,
        "envelope": {**result.envelope, "outside": usage.outside(result.usage)},
        "end_s": result.end_ns / NS_PER_S,
        "scenario": result.scenario,
        "no_effect": [one.to_json() for one in result.no_effect],
        "warnings": [one.to_json() for one in result.caveats],
        "notes": notes(result, requests, promised, kv, starved),
        **_bench(table, measured, window, throughput, goodput),
        **latency.bench_names({m: std_ns(seen[m]) for m in ("ttft", "tpot", "e2e")}, result.gaps, figures),
    }
