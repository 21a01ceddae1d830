"""AIPerf's records (profile_export.jsonl), one line a request. Keys from memory, 0.1 to 0.3.

Latencies carry their unit. Times of sending are replayed, unless the server description names a closed loop
(`workload: {arrival: {process: closed_loop, concurrency: 16}}`): a client that waits for answers must not be replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from llmqsim.errors import DataError
from llmqsim.validate.cases import Case
from llmqsim.validate.sent import Sent
from llmqsim.validate.tools.common import described, length_spec, made, number
from llmqsim.validate.tools.server import Server

TOOL = "aiperf"
TO_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}
LATENCIES = {"time_to_first_token": "ttft", "request_latency": "e2e", "inter_token_latency": "tpot"}


def is_record(record: Mapping[str, Any]) -> bool:
    """A record holds metadata with the time of sending, and metrics."""
    metadata = record.get("metadata")
    return (
        isinstance(metadata, Mapping) and "request_start_ns" in metadata and isinstance(record.get("metrics"), Mapping)
    )


def case(records: list[Mapping[str, Any]], path: str | Path, server: Server) -> Case:
    """Raises DataError, naming line and key."""
    kept = []
    for line, record in enumerate(records, 1):
        if not is_record(record):
            raise DataError(
                f"{path}:{line}: metadata.request_start_ns or metrics: missing; a record of AIPerf was expected"
            )
        phase = str(record["metadata"].get("benchmark_phase", "profiling"))
        if phase == "profiling" and not record.get("error") and not record["metadata"].get("was_cancelled"):
            kept.append((line, record))
    if not kept:
        raise DataError(f"{path}: no answered request of the profiling phase in {len(records)} records")
    start_ns = np.array([_whole(record, line, path) for line, record in kept])
    prompts = [_tokens(record, "input_sequence_length", line, path) for line, record in kept]
    outputs = [_tokens(record, "output_sequence_length", line, path) for line, record in kept]
    order = np.argsort(start_ns, kind="stable")
    sent = Sent(
        (start_ns[order] - start_ns.min()) / 1e9,
        np.array(prompts, dtype=np.int64)[order],
        np.array(outputs, dtype=np.int64)[order],
    )
    samples = {ours: _sample(kept, theirs, path) for theirs, ours in LATENCIES.items()}
    entry: dict[str, Any] = {f"{ours}_ms": described(values) for ours, values in samples.items() if values}
    entry["n_ok"] = len(kept)
    _rates(entry, sent, samples["e2e"], order)
    workload = {
        "arrival": {"process": "replayed"},
        "n_requests": len(kept),
        "prompt_tokens": length_spec(prompts, None, None),
        "output_tokens": length_spec(outputs, None, None),
    }
    if concurrency := (server.workload.get("arrival") or {}).get("concurrency"):
        entry["concurrency"] = int(concurrency)
    return made(path, Path(path).stem, server, None, TOOL, workload, entry, sent)


def _whole(record: Mapping, line: int, path: str | Path) -> int:
    value = record["metadata"]["request_start_ns"]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise DataError(f"{path}:{line}: metadata.request_start_ns: must be whole nanoseconds (got {value!r:.40})")
    return value


def _tokens(record: Mapping, key: str, line: int, path: str | Path) -> int:
    value = record["metrics"].get(key)
    found = number(value.get("value") if isinstance(value, Mapping) else value)
    if found is None or found < 1:
        raise DataError(f"{path}:{line}: metrics.{key}: missing; lengths are needed")
    return int(found)


def _sample(kept: list, key: str, path: str | Path) -> list[float]:
    """Values in ms of the records that have it."""
    values = []
    for line, record in kept:
        metric = record["metrics"].get(key)
        if not isinstance(metric, Mapping) or number(metric.get("value")) is None:
            continue
        unit = str(metric.get("unit", "ms"))
        if unit not in TO_MS:
            raise DataError(f"{path}:{line}: metrics.{key}.unit: unknown (got '{unit}'); known: {', '.join(TO_MS)}")
        values.append(number(metric["value"]) * TO_MS[unit])
    return values


def _rates(entry: dict[str, Any], sent: Sent, e2e_ms: list[float], order: np.ndarray) -> None:
    """Throughput from the first sending to the last answer, where every request says how long it took."""
    if len(e2e_ms) != len(sent):
        return
    span_s = float((sent.arrival_s + np.array(e2e_ms)[order] / 1e3).max())
    entry["throughput"] = {"req_s": len(sent) / span_s, "output_tok_s": float(sent.output_tokens.sum()) / span_s}
    entry["duration_s"] = span_s
