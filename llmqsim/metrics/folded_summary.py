"""The summary of a run whose requests are gone, under the names of summary.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmqsim.metrics import latency, slo, usage
from llmqsim.metrics.distribution import NS_PER_S, WeightedGaps, ratio
from llmqsim.metrics.folded import Folded
from llmqsim.metrics.starvation import size_label
from llmqsim.metrics.waiting import shares

if TYPE_CHECKING:
    from llmqsim.result import Result

ESTIMATED = (
    "a very long run: requests were drawn, served and added up one stretch after the other. Percentiles and standard "
    "deviations are from histograms (within 0.2 % and 0.4 %), backlogs, their verdict and the peak in flight from every "
    "{every:,}th arrival; counts, means, maxima, shares and rates are exact. Not worked out: who starved, and the cap on running requests that would spare preemptions"
)
FROM_RESULT = ("engine", "version", "seed", "replication", "scenario")


def summarise_folded(result: Result, folded: Folded) -> dict[str, Any]:
    """All figures as plain data, in the order of `summary.summarise`. result : its usage, gaps and end are of the run."""
    sums, requests = folded.sums, folded.requests
    window = usage.Window(sums.first_ns, max(sums.first_ns, sums.last_finish_ns))
    counts = {
        "requests_per_s": sums.served,
        "output_tokens_per_s": sums.output_tokens,
        "prompt_tokens_per_s": sums.prompt_tokens,
        "total_tokens_per_s": sums.prompt_tokens + sums.output_tokens,
    }
    throughput = {name: ratio(count, window.seconds) for name, count in counts.items()}
    settled = folded.backlog.stability(int((folded.per_replica[0] > 0).sum()))
    figures = _latencies(result, folded)
    asked = folded.all.asked
    goodput = ratio(folded.all.met, window.seconds) if asked else None
    return {
        **{name: getattr(result, name) for name in FROM_RESULT[:4]},
        "requests": requests,
        **figures,
        "attainment": folded.all.standing.share,
        "slo": _slo(folded, settled["verdict"]),
        "goodput_per_s": goodput,
        "throughput": throughput,
        "by_class": {},
        "by_tenant": {},
        "clients": {
            "in_flight": {
                "mean": ratio(sums.left_ns - sums.sent_ns, window.end_ns - window.start_ns),
                "peak": folded.backlog.peak(),
            },
            "sent_late": 0,
            "send_lag_s": None,
            "from_due": None,
            "censoring": None,
        },
        "warmup": None,
        "utilisation": usage.utilisation(result.usage, window, usage.Window(sums.first_ns, sums.last_ns)),
        "routing": _routing(folded),
        "kv": {**usage.kv(result.usage, window, result.kv), "suggested_cap": None},
        **_waste(result, folded),
        "waiting_for": shares(
            {name.removeprefix("wait_").removesuffix("_ns"): ns for name, ns in sums.waits_ns.items()}, sums.served
        ),
        "starvation": _starvation(folded),
        "prediction": None,
        "stability": settled,
        "envelope": {**result.envelope, "outside": usage.outside(result.usage)},
        "end_s": result.end_ns / NS_PER_S,
        "scenario": result.scenario,
        "no_effect": [one.to_json() for one in result.no_effect],
        "warnings": [one.to_json() for one in result.caveats],
        "notes": [*result.notes, ESTIMATED.format(every=folded.backlog.every)],
        "completed": sums.served,
        "duration": window.seconds,
        "total_input_tokens": sums.prompt_tokens,
        "total_output_tokens": sums.output_tokens,
        "request_throughput": throughput["requests_per_s"],
        "request_goodput": goodput,
        "output_throughput": throughput["output_tokens_per_s"],
        "total_token_throughput": throughput["total_tokens_per_s"],
        **latency.bench_names({m: its.seen.std() for m, its in folded.series.items()}, result.gaps, figures),
        "estimated": {
            "percentiles_within": 0.002,
            "deviations_within": 0.004,
            "backlog_looks_every": folded.backlog.every,
            "not_counted": ["starvation.starved", "kv.suggested_cap"],
        },
    }


def _latencies(result: Result, folded: Folded) -> dict[str, dict]:
    figures = {f"{metric}_s": series.seen.describe() for metric, series in folded.series.items()}
    figures["itl_s"] = WeightedGaps(result.gaps).describe()
    return {key: figures[key] for key in ("ttft_s", "tpot_s", "ntpot_s", "itl_s", "e2e_s", "wait_s")}


def _slo(folded: Folded, verdict: str) -> dict[str, Any]:
    given = folded.own_slo
    targets, seen = slo.targets_of(given), folded.all.standing
    wanted = given.get("attainment") if targets else None
    return {
        "targets": targets,
        "by_target": {name: folded.by_target[name].standing.share for name in slo.TARGETS if name in targets},
        "target": wanted,
        **slo.told(seen, wanted, verdict),
        "completed_share": seen.completed_share,
        "counted_from": slo.counted_from(given),
        "percentiles": [
            {
                "name": one.name,
                "limits_s": one.limits_s,
                "asked": one.share,
                "share": stood.standing.share,
                **slo.told(stood.standing, one.share, verdict),
                "completed_share": stood.standing.completed_share,
            }
            for one, stood in folded.objectives
        ],
    }


def _routing(folded: Folded) -> dict[str, Any] | None:
    if folded.replicas < 2:
        return None
    requests, ttft, cached, prompts = folded.per_replica.tolist()
    return {
        "share_per_replica": [ratio(count, sum(requests)) for count in requests],
        "ttft_mean_s_per_replica": [ratio(ns, count * NS_PER_S) for ns, count in zip(ttft, requests, strict=True)],
        "hit_share_per_replica": [ratio(hits, tokens) for hits, tokens in zip(cached, prompts, strict=True)],
        "held_at_router": 0,
        "retries": 0,
    }


def _waste(result: Result, folded: Folded) -> dict[str, Any]:
    sums, used = folded.sums, result.usage
    return {
        "preemptions": sum(u.preemptions for u in used),
        "preempted_requests": sums.preempted,
        "recomputed_tokens": sum(u.recomputed_tokens for u in used),
        "prefix_cache": {
            "hit_tokens": sums.cached_tokens,
            "hit_share": ratio(sums.cached_tokens, sums.entered_prompt_tokens),
            "loaded_tokens": sum(u.loaded_tokens for u in used),
        },
        "swap": {
            "copied_blocks": sum(u.swapped_blocks for u in used),
            "refused": sum(u.swap_refused for u in used),
        },
        "aborted_tokens": sum(u.aborted_tokens for u in used),
        "wasted_rows": sum(u.wasted_rows for u in used),
    }


def _starvation(folded: Folded) -> dict[str, Any]:
    longest = {
        size_label(at): {
            "n": count,
            "mean_s": total / (count * NS_PER_S),
            "longest_s": most / NS_PER_S,
            "starved": None,
        }
        for at, (count, total, most) in folded.without_token.items()
        if count
    }
    return {"starved": None, "longest_wait": longest}
