"""Lines of the screen that only some runs have: one a class, the client side, the warm-up."""

from __future__ import annotations

from typing import Any

from llmqsim.report.show import count, duration, figures, percent

MOST_CLASSES = 6
DRAIN_SHOWS = 0.02
"""difference of busy shares from which both are shown"""


def class_lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, text) of each class, at most MOST_CLASSES, then how many more there are."""
    classes = summary["by_class"]
    shown = [(name, _class(part)) for name, part in list(classes.items())[:MOST_CLASSES]]
    left = len(classes) - len(shown)
    return shown + ([("", f"and {count(left, 'more class')} in the JSON".replace("classs", "classes"))] if left else [])


def _class(part: dict[str, Any]) -> str:
    requests, ttft, tpot, e2e = part["requests"], part["ttft_s"], part["tpot_s"], part["e2e_s"]
    said = f"{requests['arrived']:,} req, TTFT {duration(ttft['p50'])} p50 {duration(ttft['p99'])} p99, "
    said += f"TPOT {duration(tpot['p50'])}, E2E {duration(e2e['p99'])} p99"
    said += f", SLO {percent(part['attainment'])}" if part["attainment"] is not None else ""
    lost = requests["arrived"] - requests["completed"]
    return said + (f", {lost:,} lost" if lost else "")


def client_lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Requests in flight where clients limit them, what was sent late, and what timed out."""
    seen = summary["clients"]
    traffic = summary["scenario"].get("workload") or {}
    cap = (traffic.get("clients") or {}).get("max_in_flight")
    loops = [part.get("arrivals") or {} for part in (traffic, *(traffic.get("classes") or {}).values())]
    clients = sum(loop.get("clients", 0) for loop in loops)
    said = []
    if clients or cap:
        limit = f"{count(clients, 'client')} in a closed loop" if clients else f"at most {cap:,} in flight"
        inside = seen["in_flight"]
        said.append(f"{limit}: {figures(inside['mean'])} in flight on average, {inside['peak']:,} at most")
    if seen["send_lag_s"]:
        lag, due = seen["send_lag_s"], seen["from_due"]["ttft_s"]
        said.append(
            f"{seen['sent_late']:,} of {lag['n']:,} sent late, {duration(lag['mean'])} on average; "
            f"from when they were due: TTFT {duration(due['mean'])} mean, {duration(due['p99'])} p99"
        )
    if seen["censoring"]:
        lost, e2e = seen["censoring"], seen["censoring"]["e2e_at_least_s"]
        said.append(
            f"{percent(lost['share'])} timed out ({lost['timed_out']:,}) and are missing from the latencies; with them "
            f"E2E is at least {duration(e2e['p50'])} p50, {duration(e2e['p99'])} p99"
        )
    return [("clients" if not i else "", text) for i, text in enumerate(said)]


def no_effect(summary: dict[str, Any]) -> str:
    """The keys that were written and change nothing in this run, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for one in summary.get("no_effect") or ():
        reasons.setdefault(one["why"], []).append(one["key"])
    return "; ".join(f"{', '.join(keys)} ({why})" for why, keys in reasons.items())


def warmup_lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """How much was cut, and the figures before the cut."""
    warmup = summary["warmup"]
    if warmup is None:
        return []
    how = {"mser5": "MSER-5", "requests": "as declared", "time": "as declared"}[warmup["method"]]
    if not warmup["cut_requests"]:
        return [("warm-up", f"nothing cut ({how})")]
    whole = warmup["all"]
    before = "; ".join(
        f"{label} {duration(whole[key]['mean'])} mean {duration(whole[key]['p99'])} p99"
        for label, key in (("TTFT", "ttft_s"), ("E2E", "e2e_s"))
    )
    cut = f"cut {count(warmup['cut_requests'], 'request')} ({duration(warmup['cut_s'])}, {how})"
    return [("warm-up", f"{cut}; with them {before}")]


def policy_lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """What schedulers believed of the lengths, and, where the order is not that of arrival, who waited longest."""
    said = []
    error = summary["prediction"]
    if error is not None:
        predictor = summary["scenario"]["workload"]["predictor"]["policy"]
        tau = "no order" if error["kendall_tau"] is None else f"Kendall tau {error['kendall_tau']:.2f}"
        off = f"{predictor}: {tau}, off by {figures(error['mae_tokens'])} tokens on average, "
        said.append(("predicted", f"{off}{percent(error['coverage'])} of answers no longer than predicted"))
    ordering = (summary["scenario"].get("engine") or {}).get("ordering") or {}
    if ordering.get("policy", "fcfs") != "fcfs" or summary["starvation"]["starved"]:
        sizes = summary["starvation"]["longest_wait"]
        each = ", ".join(f"{duration(part['longest_s'])} ({name} tokens)" for name, part in sizes.items())
        said.append(("waited most", f"without a token, by size: {each}"))
    return said


def pool_lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """How busy and full each pool was, then what the way between them took."""
    pools = summary.get("pools") or {}
    said = [(name, _pool(part)) for name, part in list(pools.items())[:MOST_CLASSES]]
    if len(pools) > MOST_CLASSES:
        said.append(("", f"and {len(pools) - MOST_CLASSES} more pools in the JSON"))
    way = summary.get("handoff")
    if way is not None:
        said.append(("hand-off", _way(way)))
    return said


def busy(used: dict[str, Any], of: str = "") -> str:
    """The busy share of the time, with that of the time while requests arrive where the drain makes a difference."""
    whole, arriving = used["busy"], used["busy_while_arriving"]
    if whole is None or arriving is None or abs(arriving - whole) < DRAIN_SHOWS:
        return percent(whole) + of
    return f"{percent(arriving)}{of} while requests arrive ({percent(whole)} with the drain)"


def _pool(part: dict[str, Any]) -> str:
    used, kv = part["utilisation"], part["kv"]
    shares = [share for share in used["per_replica"] if share is not None]
    spread = f" (each {percent(min(shares))} to {percent(max(shares))})" if len(shares) > 1 else ""
    said = f"busy {busy(used)}{spread}, {figures(used['mean_batch'])} in a step, "
    said += f"{duration(used['mean_step_s'])} a step"
    if kv["blocks"] is not None:
        said += f"; KV {percent(kv['usage_mean'])}, at most {percent(kv['usage_peak'])}"
    return said + (f"; {count(part['preemptions'], 'preemption')}" if part["preemptions"] else "")


def _way(way: dict[str, Any]) -> str:
    requests, total = way["requests"], way["total_s"]
    said = f"{percent(way['split_share'])} of requests"
    if total["n"]:
        said += f", {duration(total['mean'])} ({duration(total['p99'])} p99): wait {duration(way['wait_s']['mean'])}, "
        said += f"transfer {duration(way['transfer_s']['mean'])}, to run on {duration(way['resume_s']['mean'])}"
    busiest = max((link["busy"] or 0.0 for link in way["links"].values()), default=None)
    if busiest is not None:
        said += f"; {figures(way['bytes'] / 1e9)} GB, links at most {percent(busiest)} busy"
    return said + (f"; {requests['expired']:,} leases expired" if requests["expired"] else "")
