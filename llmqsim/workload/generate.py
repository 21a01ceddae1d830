"""Rows that are drawn: one stream of requests, perhaps shared by classes, or a stream for each class, superposed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from llmqsim.clients import Loop
from llmqsim.errors import ScenarioError
from llmqsim.requests import UNSET
from llmqsim.rng import stream
from llmqsim.units import NS_PER_S
from llmqsim.workload import think
from llmqsim.workload.arrivals import MAX_TIME_S, arrival_ns, bounded, mean_rate
from llmqsim.workload.rows import Rows, draw_lengths


def generate(given: dict, seed: int, replication: int, folder: Path, notes: list[str]) -> Rows:
    """given : the scenario's `workload` without what is None. Raises ScenarioError, DataError."""
    classes = {name: {k: v for k, v in c.items() if v is not None} for name, c in (given.get("classes") or {}).items()}
    if classes and not given.get("arrivals"):
        rows = _superpose(given, classes, seed, replication, folder, notes)
    else:
        rows = _one_stream(given, classes, seed, replication, folder, notes)
    if classes:
        _describe_classes(rows, classes)
    return rows


def _one_stream(given: dict, classes: dict, seed: int, replication: int, folder: Path, notes: list[str]) -> Rows:
    def draw(name: str) -> np.random.Generator:
        return stream(seed, replication, name)

    rows = _arrive(given.get("arrivals") or {}, given.get("requests"), given.get("duration"), draw, "workload.arrivals")
    n = len(rows.arrival_ns)
    u_prompt, u_output = draw("prompt_lengths").random(n), draw("output_lengths").random(n)
    if not classes:
        rows.prompt, rows.output, source = draw_lengths(given.get("lengths"), u_prompt, u_output, folder, notes)
        return replace(rows, source=f"{rows.source}; {source}")
    bounds = np.cumsum([c.get("share", 0.0) for c in classes.values()])[:-1]
    rows.class_id = np.searchsorted(bounds, draw("classes").random(n), side="right")
    rows.prompt, rows.output = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for index, (name, spec) in enumerate(classes.items()):
        mine = rows.class_id == index
        lengths, key = _lengths(given, spec, name)
        rows.prompt[mine], rows.output[mine], source = draw_lengths(
            lengths, u_prompt[mine], u_output[mine], folder, notes, key
        )
        rows.source += f"; {name} {spec.get('share', 0):.4g}: {source}"
    return rows


def _superpose(given: dict, classes: dict, seed: int, replication: int, folder: Path, notes: list[str]) -> Rows:
    """Open streams merged by time (ties by class) and cut to workload.requests; then the rows of closed loops."""
    parts: list[Rows] = []
    for index, (name, spec) in enumerate(classes.items()):

        def draw(what: str, name: str = name) -> np.random.Generator:
            return stream(seed, replication, f"{what}/{name}")

        key = f"workload.classes.{name}.arrivals"
        requests = _fewer(spec.get("requests"), given.get("requests"))
        part = _arrive(spec.get("arrivals") or {}, requests, given.get("duration"), draw, key)
        n = len(part.arrival_ns)
        lengths, key = _lengths(given, spec, name)
        u_prompt, u_output = draw("prompt_lengths").random(n), draw("output_lengths").random(n)
        part.prompt, part.output, source = draw_lengths(lengths, u_prompt, u_output, folder, notes, key)
        part.class_id, part.source = np.full(n, index), f"{name}: {part.source}; {source}"
        part.think_ns = np.broadcast_to(part.think_ns, n)
        parts.append(part)
    merged = {
        column: np.concatenate([getattr(part, column) for part in parts])
        for column in ("arrival_ns", "prompt", "output", "class_id", "think_ns")
    }
    is_open = merged["arrival_ns"] != UNSET
    opened = np.flatnonzero(is_open)
    opened = opened[np.argsort(merged["arrival_ns"][opened], kind="stable")][: given.get("requests")]
    order = np.concatenate([opened, np.flatnonzero(~is_open)])
    rows = Rows(
        **{column: values[order] for column, values in merged.items()},
        rate=sum(part.rate for part in parts),
        source="; ".join(part.source for part in parts),
    )
    start, loops = len(opened), []
    for part in parts:
        for loop in part.loops:
            loops.append(replace(loop, rows=loop.rows + start))
            start += len(loop.rows)
    rows.loops = tuple(loops)
    return rows


def _arrive(arrivals: dict, requests: int | None, duration_s: float | None, draw, key: str) -> Rows:
    """Rows of one stream, still without lengths. draw : name to random stream."""
    nothing = np.zeros(0, dtype=np.int64)
    if arrivals.get("process") != "closed_loop":
        times = arrival_ns(arrivals, requests, duration_s, draw("arrivals"), key)
        return Rows(times, nothing, nothing, mean_rate(arrivals), _describe(arrivals))
    spec = arrivals.get("think_time") or 0.0
    loop = Loop(
        rows=np.arange(bounded(requests)),
        clients=arrivals["clients"],
        ramp_up_ns=round((arrivals.get("ramp_up") or 0.0) * NS_PER_S),
        stop_ns=None if duration_s is None else round(duration_s * NS_PER_S),
        drain_after=arrivals.get("drain_after"),
    )
    thinking = think.think_ns(spec, draw("think_times").random(requests), key)
    if thinking.sum(dtype=np.float64) > MAX_TIME_S * NS_PER_S:
        raise ScenarioError(
            f"{key}.think_time: all think times together may pass the end of the clock, {MAX_TIME_S:.3g} s; "
            "shorten them"
        )
    source = f"closed loop of {loop.clients:,} clients, {think.describe(spec)}"
    return Rows(np.full(requests, UNSET), nothing, nothing, math.nan, source, think_ns=thinking, loops=(loop,))


def _describe(arrivals: dict) -> str:
    process = arrivals["process"]
    if process == "burst":
        return "burst at 0 s"
    spread = "".join(f", {k} {arrivals[k]:g}" for k in ("cv", "burstiness") if arrivals.get(k) is not None)
    spread += ", fixed count" if arrivals.get("fixed_count") else ""
    if arrivals.get("stages") is not None:
        rates = [stage["rate"] for stage in arrivals["stages"]]
        return f"{process} arrivals, {len(rates)} stages of {min(rates):g} to {max(rates):g} req/s{spread}"
    return f"{process} arrivals, {arrivals['rate']:g} req/s{spread}"


def _lengths(given: dict, spec: dict, name: str) -> tuple:
    """A class's lengths and the key that says them."""
    own = spec.get("lengths")
    return (given.get("lengths"), "workload.lengths") if own is None else (own, f"workload.classes.{name}.lengths")


def _describe_classes(rows: Rows, classes: dict) -> None:
    """Names, tenants and priorities of the classes into the rows."""
    rows.classes = tuple(classes)
    owners = [spec.get("tenant") or "all" for spec in classes.values()]
    rows.tenants = tuple(dict.fromkeys(owners))
    rows.tenant_id = np.array([rows.tenants.index(owner) for owner in owners])[rows.class_id]
    rows.priority = np.array([spec.get("priority") or 0 for spec in classes.values()])[rows.class_id]


def _fewer(one: int | None, other: int | None) -> int | None:
    known = [n for n in (one, other) if n is not None]
    return min(known) if known else None
