"""One knob, two latencies: what a setting does to TTFT and to TPOT, and which of its values meet the targets of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from llmqsim.errors import UserError
from llmqsim.metrics import slo
from llmqsim.planner.attain import BROKEN, KEPT, OPEN, Attained, sample
from llmqsim.planner.replicate import alike
from llmqsim.planner.warned import warned
from llmqsim.scenario.load import Scenario, load
from llmqsim.simulation import Prepared, prepare

TARGETS = ("ttft_s", "tpot_s")


@dataclass(frozen=True)
class Joint:
    """The share of requests that keep the targets together, with its interval: of the objective with the least margin."""

    objective: str
    asked: float
    mean: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Point:
    """One value of the knob. Latencies in seconds of the class that has the target, where it is only one, else of all;
    share of the requests with a target that keep it, each target alone; None where there is none.
    """

    value: Any
    ttft_s: dict[str, float | None]
    tpot_s: dict[str, float | None]
    shares: dict[str, float | None]
    """of each target that the SLO sets"""
    verdict: str
    """stable, unsettled or overloaded: of the replications together"""
    joint: Joint
    judged: str
    """KEPT, BROKEN or OPEN, as `gate` would say of the scenario with this value"""


@dataclass(frozen=True)
class Tradeoff:
    """All values, in the order in which they were asked for, and those that meet every target."""

    key: str
    points: tuple[Point, ...]
    wanted: float
    """share of requests that must be within all targets"""
    targets: tuple[str, ...]
    meets: tuple[Any, ...] = field(default=())
    """values that are shown to meet them, from the lowest to the highest"""
    warnings: tuple[dict[str, str], ...] = field(default=())
    """what is not modelled and makes the figures err: code, text"""

    @property
    def open(self) -> tuple[Any, ...]:
        """Values of which the runs can't tell."""
        return tuple(sorted(p.value for p in self.points if p.judged == OPEN))

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

    values : numbers. The scenario (or a class of it) must have an slo with ttft and tpot. A value meets it when the
    interval of the share of requests that keep all their targets together lies at `attainment` or above (one run's by
    batches, several runs' over replications), class by class where classes have their own, and the runs are stable.
    Raises UserError.
    """
    if not values or any(isinstance(v, bool) or not isinstance(v, (int, float)) or not math.isfinite(v) for v in values):
        raise UserError(f"--values: must be numbers with commas between, such as 512,1024,2048 (got {list(values)})")
    if replications < 1:
        raise UserError(f"--replications: must be at least 1 (got {replications})")
    points, prepared, wanted, targets = [], {}, None, None
    for value in values:
        scenario = load(path, variant, (*sets, (key, value, "--values")))
        if targets is None:
            wanted, targets = _asked(scenario)
        prepared[f"{value:g}"] = prepare(scenario)
        points.append(_point(value, prepared[f"{value:g}"], replications))
    meets = sorted(p.value for p in points if p.judged == KEPT)
    return Tradeoff(key, tuple(points), wanted, targets, tuple(meets), tuple(warned(prepared)))


def _asked(scenario: Scenario) -> tuple[float, tuple[str, ...]]:
    """The attainment, and the targets that any part of the traffic has. Raises UserError where one is missing."""
    spec = scenario.spec
    slos = [s for s in (spec.slo, *(c.slo for c in (spec.workload.classes or {}).values())) if s is not None]
    targets = tuple(t for t in TARGETS if any(getattr(slo, t.removesuffix("_s")) is not None for slo in slos))
    if targets != TARGETS:
        missing = [t.removesuffix("_s") for t in TARGETS if t not in targets]
        told = f"sets no {' and no '.join(missing)} target; a trade-off needs both, such as slo: {{ttft: 30 s, tpot: 50 ms}}"
        raise UserError(scenario.fault("slo", told))
    return max(slo.attainment for slo in slos), targets


def _whose(scenario: Scenario) -> dict[str, str | None]:
    """Target -> the class whose latency is shown: the only one that has it; None: all of the traffic."""
    spec = scenario.spec
    classes = {name: c.slo or spec.slo for name, c in (spec.workload.classes or {}).items()}
    found: dict[str, str | None] = {}
    for target in TARGETS:
        having = [n for n, slo in classes.items() if slo and getattr(slo, target.removesuffix("_s")) is not None]
        found[target] = having[0] if len(having) == 1 and len(classes) > 1 else None
    return found


def _point(value: Any, prepared: Prepared, replications: int) -> Point:
    run = prepared.scenario.spec.run
    single = replications == 1 or alike(prepared)
    runs, found = [], None
    for replication in range(1 if single else replications):
        result = prepared.run(run.seed, run.replication + replication)
        found = found or Attained(slo.objectives(result.promise, result.table.classes))
        found.samples.append(sample(result, found.objectives, single))
        runs.append(result.summary())
    assert found is not None
    latencies, shares = {}, {}
    for target, name in _whose(prepared.scenario).items():
        parts = [run if name is None else run["by_class"][name] for run in runs]
        latencies[target] = {figure: _mean([part[target][figure] for part in parts]) for figure in ("mean", "p50", "p99")}
        shares[target] = _mean([run["slo"]["by_target"].get(target) for run in runs])
    told = found.told()
    joint = Joint(told["objective"], told["asked"], told["mean"], told["low"], told["high"])
    return Point(value, latencies["ttft_s"], latencies["tpot_s"], shares, found.verdict, joint, _judged(found))


def _judged(found: Attained) -> str:
    """A run that did not settle keeps nothing. Requests too few for an interval are taken for all that there are."""
    told = []
    for number, one in enumerate(found.objectives):
        interval = found.interval(number)
        if interval is not None and interval.low is None:
            told.append(KEPT if interval.mean >= one.share else BROKEN)
        else:
            told.append(found.judge(number)[0])
    if BROKEN in told or found.verdict == "overloaded":
        return BROKEN
    return KEPT if found.verdict == "stable" and OPEN not in told else OPEN


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
