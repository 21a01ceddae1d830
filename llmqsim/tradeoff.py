"""One knob, two latencies: what a setting does to TTFT and to TPOT, and which of its values meet the targets of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from llmqsim.errors import UserError
from llmqsim.scenario.load import load
from llmqsim.simulation import simulate

TARGETS = ("ttft_s", "tpot_s")


@dataclass(frozen=True)
class Point:
    """One value of the knob. Latencies in seconds of the class that has the target, where it is only one, else of all;
    share of the requests with a target that keep it; None where there is none.
    """

    value: Any
    ttft_s: dict[str, float | None]
    tpot_s: dict[str, float | None]
    shares: dict[str, float | None]
    """of each target that the SLO sets"""
    verdict: str
    """stable, unsettled or overloaded, the worst of the replications"""


@dataclass(frozen=True)
class Tradeoff:
    """All values, in the order in which they were asked for, and those that meet every target."""

    key: str
    points: tuple[Point, ...]
    wanted: float
    """share of requests that must be within each target"""
    targets: tuple[str, ...]
    meets: tuple[Any, ...] = field(default=())
    """values that meet both, from the lowest to the highest"""

    @property
    def gaps(self) -> tuple[Any, ...]:
        """Values between the lowest and the highest that meet, which do not."""
        if not self.meets:
            return ()
        inside = sorted(p.value for p in self.points if self.meets[0] <= p.value <= self.meets[-1])
        return tuple(value for value in inside if value not in self.meets)


def tradeoff(
    path: str, key: str, values: Sequence[Any], variant=None, sets=(), replications: int = 1
) -> Tradeoff:
    """Run the scenario at each value of a key, all with the same requests, and say which values meet its targets.

    values : numbers. The scenario (or a class of it) must have an slo with ttft and tpot; a value meets a target when at
    least `attainment` of the requests that have it keep it, over all replications, and the run is not overloaded.
    Raises UserError.
    """
    if not values or any(isinstance(v, bool) or not isinstance(v, (int, float)) or not math.isfinite(v) for v in values):
        raise UserError(f"--values: must be numbers with commas between, such as 512,1024,2048 (got {list(values)})")
    if replications < 1:
        raise UserError(f"--replications: must be at least 1 (got {replications})")
    points, wanted, targets = [], None, None
    for value in values:
        scenario = load(path, variant, (*sets, (key, value, "--values")))
        if targets is None:
            wanted, targets = _asked(scenario)
        runs = [simulate(scenario, replication=scenario.spec.run.replication + r).summary() for r in range(replications)]
        points.append(_point(value, runs, _whose(scenario)))
    meets = sorted(p.value for p in points if _meets(p, targets, wanted))
    return Tradeoff(key, tuple(points), wanted, targets, tuple(meets))


def _asked(scenario) -> tuple[float, tuple[str, ...]]:
    """The attainment, and the targets that any part of the traffic has. Raises UserError where one is missing."""
    spec = scenario.spec
    slos = [s for s in (spec.slo, *(c.slo for c in (spec.workload.classes or {}).values())) if s is not None]
    targets = tuple(t for t in TARGETS if any(getattr(slo, t.removesuffix("_s")) is not None for slo in slos))
    if targets != TARGETS:
        missing = [t.removesuffix("_s") for t in TARGETS if t not in targets]
        told = f"sets no {' and no '.join(missing)} target; a trade-off needs both, such as slo: {{ttft: 30 s, tpot: 50 ms}}"
        raise UserError(scenario.fault("slo", told))
    return max(slo.attainment for slo in slos), targets


def _whose(scenario) -> dict[str, str | None]:
    """Target -> the class whose latency is shown: the only one that has it; None: all of the traffic."""
    spec = scenario.spec
    classes = {name: c.slo or spec.slo for name, c in (spec.workload.classes or {}).items()}
    found: dict[str, str | None] = {}
    for target in TARGETS:
        having = [n for n, slo in classes.items() if slo and getattr(slo, target.removesuffix("_s")) is not None]
        found[target] = having[0] if len(having) == 1 and len(classes) > 1 else None
    return found


def _point(value: Any, runs: list[dict], whose: dict[str, str | None]) -> Point:
    latencies, shares = {}, {}
    for target, name in whose.items():
        parts = [run if name is None else run["by_class"][name] for run in runs]
        latencies[target] = {figure: _mean([part[target][figure] for part in parts]) for figure in ("mean", "p50", "p99")}
        shares[target] = _mean([run["slo"]["by_target"].get(target) for run in runs])
    order = ("stable", "unsettled", "overloaded")
    verdict = max((run["stability"]["verdict"] for run in runs), key=order.index)
    return Point(value, latencies["ttft_s"], latencies["tpot_s"], shares, verdict)


def _meets(point: Point, targets: tuple[str, ...], wanted: float) -> bool:
    kept = [point.shares[target] for target in targets]
    return point.verdict != "overloaded" and all(share is not None and share >= wanted for share in kept)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
