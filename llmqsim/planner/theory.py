"""check-theory: what arithmetic and queueing formulas say of a scenario, beside what its simulation gives."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from llmqsim.errors import UserError
from llmqsim.metrics import stats
from llmqsim.planner.bounds import Bounds
from llmqsim.planner.vary import at_load, changed, loops, one_kind
from llmqsim.planner.warned import warned
from llmqsim.result import Result
from llmqsim.scenario.build import build_workload
from llmqsim.scenario.load import Sets, Variants, load
from llmqsim.simulation import Prepared, prepare

OVERLOAD = 1.6
"""times the capacity by arithmetic: what a saturated replica completes is its capacity"""
NOTHING_S = 1e-5
"""a wait below it is none, and a ratio to it says nothing"""
FILLS, MOST_REQUESTS = 16, 100_000
PK, AC, LITTLE = "Pollaczek-Khinchine", "Allen-Cunneen (Allen 1990)", "Little (1961)"


def check_theory(
    path: str | os.PathLike[str], variant: Variants = None, sets: Sets = (), replications: int = 5
) -> dict[str, Any]:
    """Rows of quantity, theory, its source, and the simulated mean with its interval. Raises UserError."""
    if replications < 1:
        raise UserError(f"--replications: must be at least 1 (got {replications})")
    prepared = one_kind(prepare(load(path, variant=variant, sets=sets)), "check-theory")
    seed = prepared.scenario.spec.run.seed
    table = build_workload(prepared.scenario, prepared.servers, seed, 0).table
    bounds = Bounds(prepared.servers.deployment, table)
    results = [prepared.run(seed, r) for r in range(replications)]
    rate = None if loops(prepared.scenario) else bounds.mix.rate_per_s
    rows = _supply(prepared, bounds, rate, replications) + _demand(prepared, bounds, rate, results) + [_little(results)]
    return {
        "scenario": prepared.scenario.path,
        "question": prepared.scenario.spec.question,
        "replications": replications,
        "warnings": warned({"": prepared}),
        "mix": {
            "rate_per_s": rate,
            "prompt_tokens": bounds.mix.prompt,
            "output_tokens": bounds.mix.output,
            "context_tokens": bounds.mix.context,
            "arrival_cv": bounds.mix.arrival_cv2**0.5,
            "service_cv": bounds.mix.service_cv2**0.5,
        },
        "limits": [
            {"name": one.name, "running": one.batch, "capacity_per_s": one.capacity_per_s, "formula": one.formula}
            for one in bounds.limits
        ],
        "binding": bounds.binding.name,
        "rows": rows,
        "stability": stats.together([r.summary()["stability"]["verdict"] for r in results]),
        "notes": _notes(prepared, bounds, rate),
    }


def _row(quantity: str, unit: str, theory: float | None, source: str, values: list[float | None]) -> dict[str, Any]:
    known = [v for v in values if v is not None]
    found = _possible(stats.t_interval(known).to_dict(), unit) if known else None
    ratio = None if not found or not theory or theory < NOTHING_S else found["mean"] / theory
    return {"quantity": quantity, "unit": unit, "theory": theory, "source": source, "simulated": found, "ratio": ratio}


def _possible(interval: dict[str, Any], unit: str) -> dict[str, Any]:
    """An interval within what the quantity can be: none of them is negative, and no share is above 1."""
    low, high = interval["low"], interval["high"]
    if low is None:
        return interval
    return {**interval, "low": max(0.0, low), "high": min(1.0, high) if unit == "share" else high}


def _supply(prepared: Prepared, bounds: Bounds, rate: float | None, replications: int) -> list[dict[str, Any]]:
    """Capacity of a replica, beside what one completes under more than that."""
    completed: list[float | None] = []
    if rate is not None:
        replicas, requests = prepared.scenario.spec.replicas, prepared.scenario.spec.workload.requests
        longer = prepared.scenario
        if requests is not None:  # a server fills before it is saturated, so that a short run would flatter it
            enough = max(requests, FILLS * bounds.slots * replicas)
            longer = changed(longer, {"workload.requests": min(enough, MOST_REQUESTS)})
        faster = Prepared(at_load(longer, OVERLOAD * bounds.capacity_per_s * replicas / rate), prepared.servers)
        for replication in range(min(replications, 3)):
            told = faster.run(prepared.scenario.spec.run.seed, replication).summary()["stability"]
            done = told["completion_rate_per_s"]
            completed.append(None if done is None or told["verdict"] != "overloaded" else done / replicas)
    source = f"work and KV demand against supply: B / (O T(B)) at B = {bounds.binding.batch:,.0f} ({bounds.binding.name})"
    return [_row("capacity of a replica", "req/s", bounds.capacity_per_s, source, completed)]


def _demand(prepared: Prepared, bounds: Bounds, rate: float | None, results: list[Result]) -> list[dict[str, Any]]:
    """What users get at the scenario's own load."""
    if rate is None:
        return []
    replicas = prepared.scenario.spec.replicas
    each, told = rate / replicas, [result.summary() for result in results]
    batch = bounds.batch_at(each)
    one = bounds.slots == 1
    unstable = f"no steady state: the load is {each / bounds.capacity_per_s:.3g} of the capacity" if batch is None else ""
    rows = [
        _row("load of a replica", "", each / bounds.capacity_per_s, "rate / (replicas x capacity)", []),
        _row("running in a replica", "requests", batch, unstable or f"{LITTLE}: rate x O T(B)", [t["utilisation"]["running_mean"] for t in told]),
    ]
    if bounds.mix.output > 1 and not bounds.stations:
        step = None if batch is None else bounds.step_s(batch)
        rows.append(_row("TPOT mean", "s", step, unstable or "T(B) at that B", [t["tpot_s"]["mean"] for t in told]))
    waits = [t["wait_s"]["mean"] if one else _queued(t) for t in told]
    source = f"{PK}: exact for one server" if one and abs(bounds.mix.arrival_cv2 - 1) < 0.2 else f"{AC}, M/G/{bounds.slots}"
    rows.append(_row("wait for a place", "s", bounds.wait_s(each), unstable or source, waits))
    pooled = f"{AC}, M/G/{bounds.slots * replicas}: one queue for all replicas"
    if replicas > 1:
        rows.append(_row("the same, one queue", "s", bounds.wait_s(rate, replicas), unstable or pooled, []))
    service = None if batch is None else bounds.residence_s(batch)
    rows.append(_row("in service", "s", service, unstable or "O T(B)", [_service(t) for t in told]))
    capacity = prepared.servers.deployment.capacity
    if capacity is not None and batch is not None:
        held = batch * (bounds.mix.context + capacity.block_size / 2) / capacity.usable_tokens
        rows.append(_row("KV pool in use", "share", held, f"{LITTLE}: rate x token-seconds", [t["kv"]["usage_mean"] for t in told]))
    return rows


def _queued(told: dict[str, Any]) -> float:
    """Mean wait for slots, memory or budget; not for the next step, which no queueing formula has."""
    return sum(told["waiting_for"][cause]["mean_s"] or 0.0 for cause in ("slots", "kv", "token_budget"))


def _service(told: dict[str, Any]) -> float | None:
    e2e, wait = told["e2e_s"]["mean"], told["wait_s"]["mean"]
    return None if e2e is None or wait is None else e2e - wait


def _little(results: list[Result]) -> dict[str, Any]:
    """Requests in the system = rate x mean time in it, both simulated: a law of every run, so the ratio is 1."""
    inside, expected = [], []
    for result in results:
        table = result.table
        done = (table.finish_ns >= 0) & result.arrived
        if not done.any():
            continue
        start, end = int(table.arrival_ns[done].min()), int(table.finish_ns[done].max())
        moments = np.concatenate([table.arrival_ns[done], table.finish_ns[done]])
        steps = np.concatenate([np.ones(int(done.sum())), -np.ones(int(done.sum()))])
        order = np.argsort(moments, kind="stable")
        count, at = np.cumsum(steps[order]), moments[order]
        inside.append(float((count[:-1] * np.diff(at)).sum() / (end - start)))
        expected.append(float((table.finish_ns - table.arrival_ns)[done].sum() / (end - start)))
    theory = float(np.mean(expected)) if expected else None
    return _row("in the system", "requests", theory, f"{LITTLE}: rate x E2E, of the same runs", list(inside))


def _notes(prepared: Prepared, bounds: Bounds, rate: float | None) -> list[str]:
    notes = []
    if rate is None:
        notes.append("clients wait for answers: there is no rate that theory could start from")
    elif rate / prepared.scenario.spec.replicas >= bounds.capacity_per_s:
        notes.append(
            "the load is beyond the capacity by arithmetic: there is no steady state, so no wait and no batch; what is "
            + "simulated grows with the length of the run"
        )
    if prepared.servers.deployment.options.enable_prefix_caching:
        notes.append("arithmetic does not know the prefix cache: what it spares makes the capacity larger")
    if not prepared.servers.deployment.batching.has_token_budget and not bounds.stations:
        notes.append("arithmetic is that of continuous batching, which this scenario does not have")
    return notes
