"""Rows from a recorded trace: cut, stretched, and with its classes, tenants and priorities where it names them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from llmqsim import rng
from llmqsim.errors import DataError, ScenarioError
from llmqsim.stamps import AUTO
from llmqsim.units import NS_PER_S
from llmqsim.workload.arrivals import to_ns
from llmqsim.workload.model.file import is_model, load_model
from llmqsim.workload.model.traffic import draw_traffic
from llmqsim.workload.reading.options import How, parse_columns
from llmqsim.workload.rows import Rows
from llmqsim.workload.trace import Trace, read_trace


def replay(given: dict, folder: Path, notes: list[str], seed: int = 0, replication: int = 0) -> Rows:
    """The trace of a workload, recorded, or drawn where the file is a traffic model. given : the scenario's `workload`.

    Raises ScenarioError, DataError.
    """
    spec = given["trace"] if isinstance(given["trace"], dict) else {"file": given["trace"]}
    clash = [k for k in ("arrivals", "lengths") if k in given]
    if clash:
        raise ScenarioError(f"workload.trace: replaces arrivals and lengths; remove workload.{clash[0]} or the trace")
    how = How(
        format=spec.get("format") or AUTO,
        columns=parse_columns(spec.get("columns") or "", "workload.trace.columns"),
        time_unit=spec.get("time_unit") or AUTO,
        skip_bad=bool(spec.get("skip_bad")),
    )
    path = folder / spec["file"]
    if is_model(path):
        trace = draw_traffic(load_model(path), seed, replication, given.get("requests"), given.get("duration"), path.name)
    else:
        trace = read_trace(path, how=how)
    scale = 1.0 if spec.get("rate_scale") is None else float(spec["rate_scale"])
    if not 0 < scale < float("inf"):
        raise ScenarioError(f"workload.trace.rate_scale: must be above 0 (got {scale:g})")
    arrival_s = spread(trace.arrival_s) if spec.get("spread_stamps") else trace.arrival_s
    times = to_ns(arrival_s / scale)
    kept = len(times)
    if "duration" in given:
        kept = int(np.searchsorted(times, to_ns(np.array([given["duration"]]))[0], side="left"))
    if "requests" in given:
        if given["requests"] > len(times):
            notes.append(f"{given['requests']:,} requests asked for; the trace has {len(times):,}")
        kept = min(kept, given["requests"])
    times = times[:kept]
    notes.extend(trace.notes)
    if scale != 1:
        notes.append(f"the trace is replayed at {scale:g} times its rate")
    if kept and times[0] > 60 * NS_PER_S and times[0] > times[-1] - times[0]:
        first_s = times[0] / NS_PER_S
        notes.append(f"the first request of the trace arrives at {first_s:,.0f} s; the run idles until then")
    span_s = (times[-1] - times[0]) / NS_PER_S if kept > 1 else 0.0
    rate = (kept - 1) / span_s if span_s else float("inf")
    rows = Rows(times, trace.prompt_tokens[:kept], trace.output_tokens[:kept], rate, trace.source, doubt=trace.doubt)
    if trace.prefix_ids is not None:
        rows.prefix_ids, rows.hash_tokens = trace.prefix_ids[:kept], trace.hash_tokens
    if trace.max_tokens is not None:
        rows.max_tokens = trace.max_tokens[:kept]
    _label(rows, trace, kept, given.get("classes") or {}, folder / spec["file"], notes)
    return rows


def spread(arrival_s: np.ndarray) -> np.ndarray:
    """Requests of one time stamp, evenly over the time to the next; those of the last stamp over the typical gap."""
    stamps, first, count = np.unique(arrival_s, return_index=True, return_counts=True)
    if len(stamps) < 2:
        return arrival_s
    gaps = np.append(np.diff(stamps), np.median(np.diff(stamps)))
    place = np.arange(len(arrival_s)) - np.repeat(first, count)
    return arrival_s + np.repeat(gaps / count, count) * place


def scatter(arrival_s: np.ndarray) -> np.ndarray:
    """Requests of one time stamp, at random over the time to the next (of the last stamp, over the typical gap).

    `spread` would make gaps more even than any client does, which matters where they are studied.
    """
    stamps, which, count = np.unique(arrival_s, return_inverse=True, return_counts=True)
    if len(stamps) < 2:
        return arrival_s
    gaps = np.append(np.diff(stamps), np.median(np.diff(stamps)))
    return np.sort(arrival_s + gaps[which] * rng.stream(0, 0, "scatter").random(len(arrival_s)))


def _label(rows: Rows, trace: Trace, kept: int, classes: dict, path: Path, notes: list[str]) -> None:
    """Class, tenant and priority from the trace's own columns, or else from what `classes` says of a class."""
    labels = {name: column[:kept] for name, column in trace.labels.items()}
    if classes and "class" not in labels:
        raise ScenarioError(
            f"workload.classes: the trace has no column 'class' to tell them by ({path}); add one or remove the classes"
        )
    if "class" in labels:
        found = sorted(set(labels["class"]))
        rows.classes = (*classes, *(name for name in found if name not in classes))
        rows.class_id = _codes(labels["class"], rows.classes)
        unused = [name for name in classes if name not in found]
        if unused:
            notes.append(f"no request of the trace is of class {', '.join(unused)}")
        rows.priority = np.array([_setting(classes, c, "priority") or 0 for c in rows.classes])[rows.class_id]
        owners = [_setting(classes, c, "tenant") or "all" for c in rows.classes]
        rows.tenants = tuple(dict.fromkeys(owners))
        rows.tenant_id = _codes(np.array(owners, dtype=object), rows.tenants)[rows.class_id]
    if "tenant" in labels:
        rows.tenants = tuple(sorted(set(labels["tenant"])))
        rows.tenant_id = _codes(labels["tenant"], rows.tenants)
    if "priority" in labels:
        rows.priority = _whole_numbers(labels["priority"], path)


def _setting(classes: dict, name: str, key: str):
    return (classes.get(name) or {}).get(key)


def _codes(names: np.ndarray, known: tuple[str, ...]) -> np.ndarray:
    index = {name: i for i, name in enumerate(known)}
    return np.array([index[name] for name in names.tolist()], dtype=np.int64)


def _whole_numbers(texts: np.ndarray, path: Path) -> np.ndarray:
    numbers = np.zeros(len(texts), dtype=np.int64)
    for row, text in enumerate(texts.tolist()):
        try:
            numbers[row] = int(text)
        except (ValueError, OverflowError):
            raise DataError(
                f"{path}: column 'priority', request {row + 1}: must be a whole number (got '{text}')"
            ) from None
    return numbers
