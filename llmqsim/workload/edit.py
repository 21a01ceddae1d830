"""Edits of a trace: its rate, its lengths, a window of it, lengths cut off, two traces mixed. Each says what it did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from llmqsim import rng
from llmqsim.errors import UserError
from llmqsim.workload.lengths import MAX_TOKENS
from llmqsim.workload.trace import Trace


def _kept(trace: Trace, rows: np.ndarray, note: str) -> Trace:
    """Some rows of a trace, in the order given (int64[k])."""
    return replace(
        trace,
        arrival_s=trace.arrival_s[rows],
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=trace.output_tokens[rows],
        labels={name: column[rows] for name, column in trace.labels.items()},
        prefix_ids=None if trace.prefix_ids is None else [trace.prefix_ids[i] for i in rows.tolist()],
        max_tokens=None if trace.max_tokens is None else trace.max_tokens[rows],
        session=None if trace.session is None else trace.session[rows],
        numbers={name: column[rows] for name, column in trace.numbers.items()},
        notes=(*trace.notes, note),
    )


def _need_times(trace: Trace, option: str) -> None:
    if not trace.has_times:
        raise UserError(f"{option}: {trace.source} has no arrival times")


def scale_rate(trace: Trace, factor: float) -> Trace:
    """The same pattern, this many times as fast. Raises UserError."""
    _need_times(trace, "--scale-rate")
    if not 0 < factor < float("inf"):
        raise UserError(f"--scale-rate: must be above 0 (got {factor:g})")
    first = trace.arrival_s[0]
    note = f"arrivals come {factor:g} times as fast: bursts are as large and {factor:g} times as short"
    return replace(trace, arrival_s=first + (trace.arrival_s - first) / factor, notes=(*trace.notes, note))


def scale_lengths(trace: Trace, prompt: float = 1.0, output: float = 1.0) -> Trace:
    """Prompts and outputs this many times as long, in whole tokens of at least 1. Raises UserError."""
    for name, factor in (("prompt", prompt), ("output", output)):
        if not 0 < factor < float("inf"):
            raise UserError(f"--scale-lengths: {name} must be above 0 (got {factor:g})")
    columns = [
        np.clip(np.rint(column * factor), 1, MAX_TOKENS).astype(np.int64)
        for column, factor in ((trace.prompt_tokens, prompt), (trace.output_tokens, output))
    ]
    notes = [f"prompts are {prompt:g} times, outputs {output:g} times as long"]
    limits = trace.max_tokens
    if limits is not None:
        limits = np.where(limits > 0, np.maximum(np.rint(limits * output).astype(np.int64), columns[1]), 0)
        notes.append("max_tokens went with the outputs")
    if prompt != 1 and trace.prefix_ids is not None:
        notes.append("prefixes in common are as long as before")
    return replace(trace, prompt_tokens=columns[0], output_tokens=columns[1], max_tokens=limits,
                   notes=(*trace.notes, *notes))  # fmt: skip


def clip(trace: Trace, prompt: int | None = None, output: int | None = None, drop: bool = False) -> Trace:
    """Lengths above these set to them, or such requests left out. Raises UserError where none is left."""
    longer = np.zeros(len(trace), dtype=bool)
    for limit, column in ((prompt, trace.prompt_tokens), (output, trace.output_tokens)):
        if limit is not None:
            if limit < 1:
                raise UserError(f"--clip: must be at least 1 (got {limit})")
            longer |= column > limit
    count = int(longer.sum())
    if drop:
        if count == len(trace):
            raise UserError("--drop-longer: no request is left; allow longer ones")
        return _kept(trace, np.flatnonzero(~longer), f"{count:,} requests with longer lengths were left out")
    return replace(
        trace,
        prompt_tokens=trace.prompt_tokens if prompt is None else np.minimum(trace.prompt_tokens, prompt),
        output_tokens=trace.output_tokens if output is None else np.minimum(trace.output_tokens, output),
        notes=(*trace.notes, f"lengths of {count:,} requests were cut"),
    )


def window(trace: Trace, begin_s: float, end_s: float) -> Trace:
    """Requests from begin_s on and before end_s, s since the first one, which then counts from begin_s. Raises UserError."""
    _need_times(trace, "--window")
    since = trace.arrival_s - trace.arrival_s[0]
    rows = np.flatnonzero((since >= begin_s) & (since < end_s))
    if not len(rows):
        raise UserError(f"--window: no request from {begin_s:g} s to {end_s:g} s; the trace lasts {since[-1]:,.6g} s")
    made = _kept(trace, rows, f"requests from {begin_s:g} s to {end_s:g} s of the trace")
    start = None if trace.start_s is None else trace.start_s + float(trace.arrival_s[0]) + begin_s
    return replace(made, arrival_s=since[rows] - begin_s, start_s=start)


def thin(trace: Trace, share: float, seed: int = 0) -> Trace:
    """A share of the requests, each chosen by chance alone: a lower rate, and bursts that are smaller. Raises UserError."""
    if not 0 < share <= 1:
        raise UserError(f"--thin: must be above 0 and at most 1 (got {share:g})")
    rows = np.flatnonzero(rng.stream(seed, 0, "thin").random(len(trace)) < share)
    if not len(rows):
        raise UserError(f"--thin: no request is left of {len(trace):,}; keep a larger share")
    return _kept(trace, rows, f"{share:.4g} of the requests, chosen by chance (seed {seed})")


def mix(traces: list[Trace]) -> Trace:
    """Several traces at once, each from its own first request on; the tenant says which one. Raises UserError.

    Prefixes of different traces are kept apart; columns that one of them lacks are left out, which is noted.
    """
    for trace in traces:
        _need_times(trace, "--mix")
    if len(traces) == 1:
        return traces[0]
    times = np.concatenate([trace.arrival_s - trace.arrival_s[0] for trace in traces])
    order = np.argsort(times, kind="stable")
    names = [f"{i + 1}: {trace.source.removeprefix('trace ')}" for i, trace in enumerate(traces)]
    tenant = np.repeat(np.array(names, dtype=object), [len(trace) for trace in traces])[order]
    notes = [note for trace in traces for note in trace.notes] + [f"{len(traces)} traces at once, each from its start"]
    lost = sorted({name for trace in traces for name in (*trace.labels, *trace.numbers)} - {"tenant"})
    if lost:
        notes.append(f"columns that were left out in mixing: {', '.join(lost)}")
    sizes = {trace.hash_tokens or 512 for trace in traces if trace.prefix_ids is not None}
    if len(sizes) > 1:
        raise UserError(f"--mix: blocks of prefixes have different sizes ({', '.join(map(str, sorted(sizes)))} tokens)")
    return Trace(
        times[order],
        np.concatenate([trace.prompt_tokens for trace in traces])[order],
        np.concatenate([trace.output_tokens for trace in traces])[order],
        "trace " + " + ".join(names),
        tuple(notes),
        {"tenant": tenant},
        _apart(traces, order) if sizes else None,
        _limits(traces, order),
        hash_tokens=max(sizes, default=0),
    )


def _apart(traces: list[Trace], order: np.ndarray) -> list[list[int]]:
    """Block ids of all traces, those of one never equal to those of another."""
    rows: list[list[int]] = []
    shift = 0
    for trace in traces:
        ids = trace.prefix_ids if trace.prefix_ids is not None else [[] for _ in range(len(trace))]
        least = min((min(row) for row in ids if row), default=0)
        rows += [[block - least + shift for block in row] for row in ids]
        shift += max((max(row) for row in ids if row), default=least) - least + 1
    return [rows[i] for i in order.tolist()]


def _limits(traces: list[Trace], order: np.ndarray) -> np.ndarray | None:
    if all(trace.max_tokens is None for trace in traces):
        return None
    none = [np.zeros(len(t), dtype=np.int64) if t.max_tokens is None else t.max_tokens for t in traces]
    return np.concatenate(none)[order]
