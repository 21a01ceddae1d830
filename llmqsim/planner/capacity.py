"""capacity: goodput against load, the load at which the SLO breaks, and how much growth is left until there."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from typing import Any

from llmqsim import progress
from llmqsim.answers import answer_of
from llmqsim.errors import UserError
from llmqsim.metrics import slo, stats
from llmqsim.planner.bounds import Bounds
from llmqsim.planner.settle import Length, Tell, quiet
from llmqsim.planner.step_error import StepError, moved
from llmqsim.planner.vary import at_load, loops, one_kind
from llmqsim.planner.warned import warned
from llmqsim.requests import RequestTable
from llmqsim.scenario.build import build_workload
from llmqsim.scenario.load import Sets, Variants, load
from llmqsim.simulation import Prepared, prepare, promise

SHARES = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15)
"""of the capacity by arithmetic: the loads that are tried first"""
REFINED = 4
"""loads added, one after the other, where the curve crosses the target"""
AROUND, REFINED_AROUND = (0.7, 0.85, 0.95, 1.05, 1.15, 1.3), 2
"""of the knee: loads that are tried with other step times, and how many are added"""
LEAST_SHARE, MOST_TIMES = 0.1, 3.0
"""of the knee: no load below, or above, is tried with other step times"""


@answer_of("capacity")
def capacity(
    path: str | os.PathLike[str],
    variant: Variants = None,
    sets: Sets = (),
    replications: int = 5,
    growth: float | None = None,
    seed: int | None = None,
    tell: Tell = quiet,
) -> dict[str, Any]:
    """Goodput and attainment over loads, the knee with its interval. growth : of the load a month, such as 0.05.

    tell : takes lines for the status line. Returns plain data, as docs/sizing.md describes. Raises UserError.
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
    length = Length(prepared.scenario, len(table), tell)
    curve = Curve(prepared, objectives, rate, replications, seed, length, _most(bounds, prepared, rate))
    progress.stage("capacity", (len(SHARES) + 1 + REFINED) * replications)
    for share in SHARES:
        curve.at(share * ceiling / rate)
    curve.at(1.0)
    for _ in range(REFINED):
        if (factor := curve.undecided()) is None:
            break
        curve.at(factor)
    progress.stage("capacity, with other step times", None)
    return _told(prepared, curve, bounds, ceiling, growth, step_error(curve, table))


class Curve:
    """Points by load factor; every one serves the same replications, so that the curve is smooth.

    length : of the runs, which become longer where a load that seems kept did not settle; None: they stay as they are.
    most : the factor above which arithmetic says overload, whatever a run shows.
    """

    def __init__(
        self,
        prepared: Prepared,
        objectives: list[slo.Objective],
        rate: float,
        replications: int,
        seed: int,
        length: Length | None = None,
        most: float = math.inf,
    ):
        self.prepared, self.objectives, self.rate = prepared, objectives, rate
        self.replications, self.seed = replications, seed
        self.length, self.most = length, most
        self.points: dict[float, list[dict[str, Any]]] = {}

    def at(self, factor: float) -> list[dict[str, Any]]:
        """The runs at one load, once."""
        factor = round(factor, 6)
        if factor not in self.points:
            self.points[factor] = self._settled(self._faster(factor))
        return self.points[factor]

    def _settled(self, faster: Prepared) -> list[dict[str, Any]]:
        """The runs at one load, long enough for the backlog verdict, where the limit allows it."""
        while True:
            longer = faster if self.length is None else self.length.of(faster)
            runs = [self._run(longer, r) for r in range(self.replications)]
            if self.length is None or not _too_short(runs):
                return runs
            if not self.length.lengthen("whether the backlog grows is not known yet"):
                return runs

    def held(self, factor: float, replication: int) -> bool:
        """Does a replication keep every target at a load that arithmetic allows, where no backlog grows?"""
        margin = self.points[factor][replication]["margin"]
        return margin is not None and margin >= 0 and factor <= self.most and settled(self.points[factor])

    def first(self, factor: float) -> dict[str, Any]:
        """The first replication alone, for a look at a load before it is worth all of them."""
        return self._run(self._faster(factor), 0)

    def _faster(self, factor: float) -> Prepared:
        return Prepared(at_load(self.prepared.scenario, factor), self.prepared.servers)

    def _run(self, faster: Prepared, replication: int) -> dict[str, Any]:
        result = faster.run(self.seed, replication)
        if self.length is not None:
            self.length.saw(result.engine)
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
            "requests": len(result.table),
        }

    def all_held(self, factor: float) -> bool:
        """Do all replications?"""
        return all(self.held(factor, r) for r in range(self.replications))

    def any_held(self, factor: float) -> bool:
        """Does one replication?"""
        return any(self.held(factor, r) for r in range(self.replications))

    def crossing(self, replication: int) -> float | None:
        """The load factor at which this replication's least margin falls to nothing; None where it never does.

        The last one that is held where the next one only lacks the backlog verdict, or has the wrong one.
        """
        before: tuple[float, float] | None = None
        for factor in sorted(self.points):
            margin = self.points[factor][replication]["margin"]
            if margin is None:
                continue
            if not self.held(factor, replication):
                if before is None:
                    return None
                inside = before[0] if margin >= 0 else before[0] + (factor - before[0]) * before[1] / (before[1] - margin)
                return min(inside, self.most)
            before = (factor, margin)
        return None

    def knee(self) -> tuple[stats.Interval | None, bool]:
        """The load factor of the crossing over replications; was it above (or below) every load tried?"""
        found = [self.crossing(r) for r in range(self.replications)]
        known = [f for f in found if f is not None]
        return (stats.t_interval(known) if len(known) == len(found) else None), not known

    def undecided(self) -> float | None:
        """A load between the last where all replications keep the SLO and the first where none does, half way."""
        kept = [f for f in self.points if self.all_held(f)]
        broken = [f for f in self.points if not self.any_held(f)]
        low, high = max(kept, default=0.0), min(broken, default=math.inf)
        inside = sorted(f for f in self.points if low <= f <= high)
        if not kept or high == math.inf or len(inside) < 2 or high / low < 1.02:
            return None
        gaps = [(b - a, (a + b) / 2) for a, b in pairwise(inside)]
        return max(gaps)[1]


def settled(runs: list[dict[str, Any]]) -> bool:
    """Is it known of a load that no backlog grows? Most runs must say so, and none the opposite."""
    verdicts = [run["verdict"] for run in runs if "verdict" in run]
    return not verdicts or (stats.together(verdicts) == "stable" and "overloaded" not in verdicts)


def _too_short(runs: list[dict[str, Any]]) -> bool:
    """Is the backlog verdict missing of a load that some replication keeps?"""
    keeps = any(run["margin"] is not None and run["margin"] >= 0 for run in runs)
    return keeps and not settled(runs) and stats.together([run["verdict"] for run in runs]) != "overloaded"


def _most(bounds: Bounds, prepared: Prepared, rate: float) -> float:
    """The load factor above which arithmetic says overload; infinite where it knows none."""
    asked = slo.objectives(promise(prepared.scenario), ())
    return bounds.most_per_s(asked) * prepared.scenario.spec.replicas / rate


def step_error(curve: Curve, table: RequestTable) -> StepError | None:
    """How the load at which the SLO breaks moves with step times, requests a second. table : requests of one run."""
    knee = curve.knee()[0]
    if knee is None:
        return None

    def answer(prepared: Prepared) -> tuple[float | None, str | None]:
        most = _most(Bounds(prepared.servers.deployment, table), prepared, curve.rate)
        other = Curve(prepared, curve.objectives, curve.rate, curve.replications, curve.seed, curve.length, most)
        for share in AROUND:
            other.at(share * knee.mean)
        while not other.all_held(low := min(other.points)) and low > LEAST_SHARE * knee.mean:
            other.at(AROUND[0] * low)
        while other.any_held(high := max(other.points)) and high < MOST_TIMES * knee.mean:
            other.at(AROUND[-1] * high)
        for _ in range(REFINED_AROUND):
            if (factor := other.undecided()) is not None:
                other.at(factor)
        found = other.knee()[0]
        return (None, "no knee between the loads tried") if found is None else (found.mean * curve.rate, None)

    return moved(curve.prepared, answer)


def _told(prepared: Prepared, curve: Curve, bounds: Bounds, ceiling: float, growth: float | None, error: StepError | None) -> dict[str, Any]:
    knee, never = curve.knee()
    points = [_point(curve, factor) for factor in sorted(curve.points)]
    known = [p for p in points if p["goodput"] is not None and p["stability"] != "overloaded"]
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
        "step_error": None if error is None else error.to_dict(),
        "run_length": curve.length.told().to_dict() if curve.length is not None else None,
        "notes": _notes(curve, points, knee, never),
    }


def _point(curve: Curve, factor: float) -> dict[str, Any]:
    runs = curve.points[factor]

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
        "kept": all(curve.held(factor, r) for r in range(curve.replications) if runs[r]["margin"] is not None)
        and any(r["margin"] is not None for r in runs),
        "stability": stats.together([r["verdict"] for r in runs]),
        "requests": max(r["requests"] for r in runs),
    }


def _months(knee: stats.Interval | None, growth: float | None) -> float | None:
    if knee is None or not growth:
        return None
    return max(0.0, math.log(max(knee.mean, 1e-9)) / math.log1p(growth))


def _notes(curve: Curve, points: list[dict[str, Any]], knee: stats.Interval | None, never: bool) -> list[str]:
    notes = []
    length = curve.length.told() if curve.length is not None else None
    if length is not None and length.sentence is not None:
        notes.append(length.sentence)
    if knee is None and never:
        kept = [p for p in points if p["kept"]]
        notes.append("the SLO holds at every load tried" if kept else "the SLO holds at no load tried; see llmqsim size for the reason")
    elif knee is None:
        notes.append("some replications break the SLO at every load or at none: more replications or longer runs may tell")
    if open_ := [p for p in points if _too_short(curve.points[p["factor"]])]:
        rates = ", ".join(f"{p['rate_per_s']:.3g}" for p in open_)
        limit = length.fixed if length is not None and length.fixed else "runs are as long as they may become"
        notes.append(f"undecided, and not counted as kept: {rates} req/s, where the backlog verdict is missing; {limit}")
    if knee is not None and curve.most < math.inf and knee.high is not None and knee.high >= curve.most * (1 - 1e-9):
        notes.append(f"above {curve.most * curve.rate:.3g} req/s arithmetic says overload, whatever a run of this length shows")
    return notes
