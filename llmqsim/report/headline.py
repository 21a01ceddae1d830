"""What was simulated, in one or two lines, from the resolved scenario."""

from __future__ import annotations

from typing import Any

from llmqsim.report.show import count, figures

REJECTED: dict[str, str] = {
    "exceeds_max_model_len": "longer than max_model_len",
    "exceeds_kv_pool": "larger than the KV pool",
    "exceeds_token_budget": "longer than a step's token budget",
    "rate_limited": "over the rate limit",
    "queue_full": "queue full",
    "would_miss_deadline": "would have missed the deadline",
}
"""each Reason of requests.py in words"""


def system(figures_: dict[str, Any]) -> str:
    """"llama-3.1-8b on 4 × a100-sxm-80gb, 2 replicas of TP 2, vllm-0.19, round_robin (reference engine, seed 0)"."""
    scenario = figures_["scenario"]
    if scenario.get("pools"):
        return _pools(figures_)
    cost = scenario.get("cost") or {}
    model, gpu = _name(scenario.get("model")), _gpu(scenario.get("gpu"))
    kind = cost.get("model") if isinstance(cost, dict) else None
    what = model or "a server"
    if gpu is None or kind not in (None, "calibrated"):
        what += f" with {kind or 'its own'} step cost"
    replicas = scenario.get("replicas") or 1
    tp, pp = scenario.get("tensor_parallel_size") or 1, scenario.get("pipeline_parallel_size") or 1
    parts = [f"{what} on {replicas * tp * pp} × {gpu}" if gpu else f"{what}, {count(replicas, 'replica')}"]
    shape = " × ".join(f"{name} {size}" for name, size in (("TP", tp), ("PP", pp)) if size > 1)
    if shape:
        parts.append(f"{count(replicas, 'replica')} of {shape}" if gpu else shape)
    if preset := (scenario.get("engine") or {}).get("preset"):
        parts.append(preset)
    if replicas > 1 and (routing := _name(scenario.get("routing"))):
        parts.append(routing)
    return f"{', '.join(parts)} ({figures_['engine']} engine, seed {figures_['seed']})"


def _pools(figures_: dict[str, Any]) -> str:
    """"llama-3.1-8b, prefill 1 × h100-sxm, decode 2 × h100-sxm TP 2, over rdma-400g by vllm_nixl (…)"."""
    scenario = figures_["scenario"]
    parts = [_name(scenario.get("model")) or "servers"]
    for name, pool in scenario["pools"].items():
        tp, gpu = pool.get("tensor_parallel_size") or 1, _gpu(pool.get("gpu"))
        each = f"{count(pool['replicas'], 'replica')}" if gpu is None else f"{pool['replicas'] * tp} × {gpu}"
        parts.append(f"{name} {each}" + (f" TP {tp}" if tp > 1 else ""))
    if way := scenario.get("handoff"):
        parts.append(f"over {_name(way['link'])} by {way['preset']}")
    presets = {pool["engine"].get("preset") for pool in scenario["pools"].values()}
    if len(presets) == 1 and (preset := presets.pop()):
        parts.append(preset)
    return f"{', '.join(parts)} ({figures_['engine']} engine, seed {figures_['seed']})"


def traffic(figures_: dict[str, Any]) -> str:
    """"azure2023_conv.csv.gz: 2,000 requests over 310 s (6.45 req/s)"."""
    workload = figures_["scenario"].get("workload") or {}
    requests, window_s = figures_["requests"], figures_["stability"]["window_s"]
    trace = workload.get("trace")
    source = _name(trace) if trace else _arrivals(workload)
    said = f"{source}: {count(requests['arrived'], 'request')}"
    if window_s:
        rate = (requests["arrived"] - 1) / window_s
        said += f" over {figures(window_s)} s ({figures(rate)} req/s)"
    return said


def outcome(figures_: dict[str, Any]) -> str:
    """"1,990 completed, 10 rejected (7 longer than max_model_len, 3 larger than the KV pool), 0 unfinished"."""
    requests, reasons = figures_["requests"], figures_["requests"]["rejected_for"]
    each = [(f"{n:,} " if len(reasons) > 1 else "") + REJECTED[reason] for reason, n in reasons.items()]
    why = ", ".join(each)
    rejected = f"{requests['rejected']:,} rejected" + (f" ({why})" if why else "")
    timed_out = f", {requests['timed_out']:,} timed out" if requests["timed_out"] else ""
    return f"{requests['completed']:,} completed, {rejected}{timed_out}, {requests['unfinished']:,} unfinished"


def _arrivals(workload: dict[str, Any]) -> str:
    given, classes = workload.get("arrivals"), (workload.get("classes") or {}).values()
    process = _name(given) or ("each class's own" if any(one.get("arrivals") for one in classes) else "given")
    if workload.get("lengths"):
        return f"{process} arrivals, lengths {_lengths(workload['lengths'])}"
    return f"{process} arrivals" + (", each class's own lengths" if any(one.get("lengths") for one in classes) else "")


def _lengths(value: Any) -> str:
    """"azure-conversation", or "8,000 in, log-normal 250 (CV 1) out" of a mapping of prompt and output."""
    if not isinstance(value, dict) or "prompt" not in value:
        return _name(value) or "as given"
    return f"{_length(value['prompt'])} in, {_length(value.get('output'))} out"


def _length(value: Any) -> str:
    """A distribution of tokens in a few words."""
    if not isinstance(value, dict):
        return f"{value:,}" if isinstance(value, (int, float)) else str(value)
    if "constant" in value:
        return f"{value['constant']:,}"
    if "uniform" in value:
        low, high = value["uniform"]
        return f"{low:,} to {high:,}"
    for kind, word in (("lognormal", "log-normal"), ("exponential", "exponential")):
        if kind in value:
            mean, cv = value[kind]["mean"], value[kind].get("cv")
            return f"{word} {mean:,.6g}" + (f" (CV {cv:g})" if cv is not None else "")
    return "as given"


def _gpu(value: Any) -> str | None:
    """A card of the reader's own without a name must not pass for the one that it is like."""
    if isinstance(value, dict) and value.get("name") is None:
        return f"{value['like']} (changed)" if value.get("like") else "own GPU"
    return _name(value)


def _name(value: Any) -> str | None:
    """The name of a thing given by name or as a mapping that holds one."""
    if isinstance(value, dict):
        for key in ("policy", "process", "file", "config", "name", "like", "preset"):
            if value.get(key) is not None:
                return str(value[key]).rsplit("/", 1)[-1]
        return "as given"
    return None if value is None else str(value).rsplit("/", 1)[-1]
