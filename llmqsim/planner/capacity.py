"""capacity: goodput against load, the load at which the SLO breaks, and how much growth is left until there."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from typing import Any

from llmqsim.errors import UserError
from llmqsim.metrics import slo, stats
from llmqsim.planner.bounds import Bounds
from llmqsim.planner.vary import at_load, loops, one_kind
from llmqsim.planner.warned import warned
from llmqsim.scenario.build import build_workload
from llmqsim.scenario.load import Sets, Variants, load
from llmqsim.simulation import Prepared, prepare, promise

SHARES = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15)
"""of the capacity by arithmetic: the loads that are tried first"""
REFINED = 4
"""loads added, one after the other, where the curve crosses the target"""


def capacity(
    path: str | os.PathLike[str],
    variant: Variants = None,
    sets: Sets = (),
    replications: int = 5,
    growth: float | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Goodput and attainment over loads, the knee with its interval. growth : of the load a month, such as 0.05.

    Returns plain data, as docs/sizing.md describes. Raises UserError.
    """
    prepared = one_kind(prepare(load(path, variant=variant, sets=sets)), "capacity")
    if loops(prepared.scenario):
        raise UserError(
            prepared.scenario.fault("workload", "clients wait for answers, so there is no load to raise; vary clients with compare")
        )
    if replications < 2:
        raise UserError(f"--replications: must be at least 2, or there is no interval (got {replications})")
    seed = prepared.scenario.spec.run.seed if seed is None else seed
    table = build_workload(prepared.scenario, prepared.servers, seed, 0).table
    objectives = slo.objectives(promise(prepared.scenario), table.classes)
    if not objectives:
        raise UserError(prepared.scenario.fault("slo", "missing; goodput needs a target, such as {ttft: 500 ms, tpot: 50 ms}"))
    bounds = Bounds(prepared.servers.deployment, table)
    rate = getattr(prepared.scenario.spec.workload.arrivals, "rate", None) or bounds.mix.rate_per_s
    if not rate:
        raise UserError(prepared.scenario.fault("workload.arrivals", "has no rate to raise; give rate or stages"))
    ceiling = bounds.capacity_per_s * prepared.scenario.spec.replicas
    curve = Curve(prepared, objectives, rate, replications, seed)
    for share in SHARES:
        curve.at(share * ceiling / rate)
    curve.at(1.0)
    for _ in range(REFINED):
        if (factor := curve.undecided()) is None:
            break
        curve.at(factor)
    return _told(prepared, curve, bounds, ceiling, growth)


class Curve:
    """Points by load factor; every one serves the same replications, so that the curve is smooth."""

    def __init__(
        self, prepared: Prepared, objectives: list[slo.Objective], rate: float, replications: int, seed: int
    ):
        self.prepared, self.objectives, self.rate = prepared, objectives, rate
        self.replications, self.seed = replications, seed
        self.points: dict[float, list[dict[str, Any]]] = {}

    def at(self, factor: float) -> list[dict[str, Any]]:
        """The runs at one load, once."""
        factor = round(factor, 6)
        if factor not in self.points:
            faster = self._faster(factor)
            self.points[factor] = [self._run(faster, r) for r in range(self.replications)]
        return self.points[factor]

    def first(self, factor: float) -> dict[str, Any]:
        """The first replication alone, for a look at a load before it is worth all of them."""
        return self._run(self._faster(factor), 0)

    def _faster(self, factor: float) -> Prepared:
        return Prepared(at_load(self.prepared.scenario, factor), self.prepared.servers)

    def _run(self, faster: Prepared, replication: int) -> dict[str, Any]:
        result = faster.run(self.seed, replication)
        told = result.summary()
        shares = [slo.stand(result, one).share for one in self.objectives]
        margins = [s - one.share for s, one in zip(shares, self.objectives, strict=True) if s is not None]
        done = told["requests"]["completed"]
        return {
            "margin": min(margins) if margins else None,
            "share": min((s for s in shares if s is not None), default=None),
            "goodput": told["goodput_per_s"],
            "throughput": told["throughput"]["requests_per_s"] if done else 0.0,
            "ttft_p99_s": told["ttft_s"]["p99"],
            "verdict": told["stability"]["verdict"],
        }

    def crossing(self, replication: int) -> float | None:
        """The load factor at which this replication's least margin falls to nothing; None where it never does."""
        before: tuple[float, float] | None = None
        for factor in sorted(self.points):
            margin = self.points[factor][replication]["margin"]
            if margin is None:
                continue
            if margin < 0:
                if before is None:
                    return None
                return before[0] + (factor - before[0]) * before[1] / (before[1] - margin)
            before = (factor, margin)
        return None

    def knee(self) -> tuple[stats.Interval | None, bool]:
        """The load factor of the crossing over replications; was it above (or below) every load tried?"""
        found = [self.crossing(r) for r in range(self.replications)]
        known = [f for f in found if f is not None]
        return (stats.t_interval(known) if len(known) == len(found) else None), not known

    def undecided(self) -> float | None:
        """A load between the last where all replications keep the SLO and the first where none does, half way."""
        kept = [f for f in self.points if all((r["margin"] or 0) >= 0 for r in self.points[f])]
        broken = [f for f in self.points if all(r["margin"] is not None and r["margin"] < 0 for r in self.points[f])]
        low, high = max(kept, default=0.0), min(broken, default=math.inf)
        inside = sorted(f for f in self.points if low <= f <= high)
        if not kept or high == math.inf or len(inside) < 2 or high / low < 1.02:
            return None
        gaps = [(b - a, (a + b) / 2) for a, b in pairwise(inside)]
        return max(gaps)[1]


def _told(prepared: Prepared, curve: Curve, bounds: Bounds, ceiling: float, growth: float | None) -> dict[str, Any]:
    knee, never = curve.knee()
    points = [_point(curve, factor) for factor in sorted(curve.points)]
    known = [p for p in points if p["goodput"] is not None]
    best = max(known, key=lambda p: p["goodput"]["mean"], default=None)
    at_limit = None if knee is None else {k: v * curve.rate for k, v in (("mean", knee.mean), ("low", knee.low), ("high", knee.high))}
    return {
        "scenario": prepared.scenario.path,
        "question": prepared.scenario.spec.question,
        "replications": curve.replications,
        "rate_per_s": curve.rate,
        "capacity_by_arithmetic_per_s": ceiling,
        "binding": bounds.binding.name,
        "objectives": [one.label for one in curve.objectives],
        "points": points,
        "knee_rate_per_s": at_limit,
        "kept_now": points[[p["factor"] for p in points].index(1.0)]["kept"],
        "growth_left": None if knee is None else {"mean": knee.mean - 1, "low": knee.low - 1, "high": knee.high - 1},
        "months_left": _months(knee, growth),
        "growth_per_month": growth,
        "best_goodput": best,
        "warnings": warned({"": prepared}),
        "notes": _notes(points, knee, never),
    }


def _point(curve: Curve, factor: float) -> dict[str, Any]:
    runs = curve.points[factor]
    margins = [r["margin"] for r in runs if r["margin"] is not None]

    def over(name: str) -> dict[str, Any] | None:
        values = [r[name] for r in runs if r[name] is not None]
        return stats.t_interval(values).to_dict() if len(values) == len(runs) else None

    return {
        "factor": factor,
        "rate_per_s": factor * curve.rate,
        "goodput": over("goodput"),
        "throughput": over("throughput"),
        "attainment": over("share"),
        "ttft_p99_s": over("ttft_p99_s"),
        "kept": bool(margins) and all(m >= 0 for m in margins),
        "stability": stats.together([r["verdict"] for r in runs]),
    }


def _months(knee: stats.Interval | None, growth: float | None) -> float | None:
    if knee is None or not growth:
        return None
    return max(0.0, math.log(max(knee.mean, 1e-9)) / math.log1p(growth))


def _notes(points: list[dict[str, Any]], knee: stats.Interval | None, never: bool) -> list[str]:
    notes = []
    if knee is None and never:
        kept = [p for p in points if p["kept"]]
        notes.append("the SLO holds at every load tried" if kept else "the SLO holds at no load tried; see llmqsim size for the reason")
    elif knee is None:
        notes.append("some replications break the SLO at every load or at none: more replications or longer runs may tell")
    if any(p["stability"] == "unsettled" for p in points if p["kept"]):
        notes.append("some runs are too short to show a steady state; a longer workload may move the knee down")
    return notes
