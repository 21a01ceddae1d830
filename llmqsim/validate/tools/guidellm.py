"""GuideLLM's report (benchmarks.json). Keys from memory, versions 0.2 to 0.5; other layouts are refused.

Its `time_per_output_token_ms` is E2E over all tokens (NTPOT here), its `inter_token_latency_ms` a mean per request (TPOT
here).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmqsim.errors import DataError
from llmqsim.validate.cases import Case
from llmqsim.validate.tools.common import made, number
from llmqsim.validate.tools.server import Server

TOOL = "guidellm"
LATENCIES = {
    "time_to_first_token_ms": ("ttft", 1.0),
    "inter_token_latency_ms": ("tpot", 1.0),
    "time_per_output_token_ms": ("ntpot", 1.0),
    "request_latency": ("e2e", 1e3),
}
"""its metric -> ours, and ms in its unit"""
STATS = {"mean": "mean", "median": "p50"}
PERCENTILES = ("p50", "p90", "p95", "p99")


def is_report(record: Mapping[str, Any]) -> bool:
    """A report is a list of benchmarks, each with metrics of successful requests."""
    return isinstance(record.get("benchmarks"), list)


def cases(report: Mapping[str, Any], path: str | Path, server: Server) -> list[Case]:
    """One case a benchmark. Raises DataError for a layout that is not known, naming the version that wrote it."""
    metadata = report.get("metadata") if isinstance(report.get("metadata"), Mapping) else {}
    version = metadata.get("guidellm_version") or metadata.get("version") or "unknown"
    found = []
    for i, bench in enumerate(report["benchmarks"]):
        metrics = bench.get("metrics") if isinstance(bench, Mapping) else None
        strategy = _strategy(bench) if isinstance(bench, Mapping) else None
        if not isinstance(metrics, Mapping) or strategy is None:
            raise DataError(
                f"{path}: benchmarks[{i}]: no metrics and strategy as GuideLLM 0.2 to 0.5 write them (version {version})"
            )
        found.append(_case(bench, metrics, strategy, path, i, server))
    if not found:
        raise DataError(f"{path}: benchmarks: none in the report (GuideLLM version {version})")
    return found


def _strategy(bench: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The load strategy, wherever a version keeps it."""
    for holder in ("args", "config", "scheduler"):
        inner = bench.get(holder)
        if isinstance(inner, Mapping) and isinstance(inner.get("strategy"), Mapping):
            return inner["strategy"]
    return None


def _case(bench: Mapping, metrics: Mapping, strategy: Mapping, path: str | Path, place: int, server: Server) -> Case:
    kind = str(strategy.get("type_") or strategy.get("type") or "").lower()
    prompt, output = _successful(metrics, "prompt_token_count"), _successful(metrics, "output_token_count")
    n = number(output.get("count"))
    for key, value in (("prompt_token_count", prompt), ("output_token_count", output)):
        if not number(value.get("mean")):
            raise DataError(
                f"{path}: benchmarks[{place}].metrics.{key}: no mean of successful requests; lengths are needed"
            )
    workload: dict[str, Any] = {"prompt_tokens": _length(prompt), "output_tokens": _length(output)}
    if n:
        workload["n_requests"] = int(n)
    entry = _measured(metrics)
    _load(kind, strategy, workload, entry, metrics, f"{path}: benchmarks[{place}]")
    name = f"{Path(path).stem}-{place + 1}-{kind}"
    return made(path, name, server, _model(bench), TOOL, workload, entry)


def _load(kind: str, strategy: Mapping, workload: dict, entry: dict, metrics: Mapping, place: str) -> None:
    streams, rate = number(strategy.get("streams") or strategy.get("max_concurrency")), number(strategy.get("rate"))
    if kind == "synchronous":
        streams = 1.0
    if kind in ("synchronous", "concurrent"):
        if not streams:
            raise DataError(f"{place}.strategy.streams: missing; a {kind} run needs the number of clients")
        workload["arrival"], entry["concurrency"] = {"process": "closed_loop"}, int(streams)
    elif kind == "throughput":
        in_flight = number(_successful(metrics, "request_concurrency").get("max")) or streams
        if in_flight:
            workload["arrival"], entry["concurrency"] = {"process": "closed_loop"}, int(in_flight)
        else:
            workload["arrival"] = {"process": "all_at_once"}
    elif kind in ("constant", "poisson", "async"):
        if not rate:
            raise DataError(f"{place}.strategy.rate: missing; a {kind} run needs it")
        workload["arrival"] = {"process": "constant" if kind == "async" else kind, "rate_per_s": rate}
    else:
        raise DataError(
            f"{place}.strategy.type: unknown (got '{kind}'); known: synchronous, concurrent, throughput, constant, poisson"
        )


def _successful(metrics: Mapping, key: str) -> Mapping[str, Any]:
    value = metrics.get(key)
    inner = value.get("successful", value) if isinstance(value, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _length(summary: Mapping[str, Any]) -> dict[str, Any]:
    mean, deviation, longest = (number(summary.get(key)) for key in ("mean", "std_dev", "max"))
    if deviation is None or deviation < 0.5:
        return {"exact": max(1, round(mean))}
    return {"mean": mean, "sd": deviation, **({"max": int(longest)} if longest else {})}


def _measured(metrics: Mapping) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for key, (ours, ms) in LATENCIES.items():
        summary = _successful(metrics, key)
        percentiles = summary.get("percentiles") if isinstance(summary.get("percentiles"), Mapping) else {}
        stats = {ours_stat: number(summary.get(theirs)) for theirs, ours_stat in STATS.items()}
        stats |= {p: number(percentiles.get(p)) for p in PERCENTILES if percentiles.get(p) is not None}
        if kept := {stat: value * ms for stat, value in stats.items() if value is not None}:
            entry[f"{ours}_ms"] = kept
    rates = {"req_s": "requests_per_second", "output_tok_s": "output_tokens_per_second"}
    found = {ours: number(_successful(metrics, key).get("mean")) for ours, key in rates.items()}
    entry["throughput"] = {ours: value for ours, value in found.items() if value is not None}
    return entry


def _model(bench: Mapping[str, Any]) -> str | None:
    """The model's name, where the report says it."""
    for holder in ("worker", "args", "config", "backend"):
        inner = bench.get(holder)
        if isinstance(inner, Mapping):
            for key in ("backend_model", "model", "target_model"):
                if isinstance(inner.get(key), str):
                    return inner[key]
    return None
