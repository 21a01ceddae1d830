"""A scenario with some levers pulled, and what it gives: attainment at the load as it is, and the load that the SLO allows.

All trials share their random numbers, replication by replication, so that differences are known far better than figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llmqsim.metrics import slo, stats
from llmqsim.planner.advise.facts import Facts
from llmqsim.planner.capacity import Curve
from llmqsim.planner.replicate import alike
from llmqsim.planner.utilisation import saturated_tokens_per_s, steady_tokens_per_s
from llmqsim.planner.vary import changed
from llmqsim.result import Result
from llmqsim.scenario.load import Scenario, Sets, Variants, load
from llmqsim.simulation import Prepared, prepare

MOST_REPLICATIONS, FEWEST_REPLICATIONS = 10, 5
REQUESTS = 60_000
"""over all replications of a load: what decides how many there are"""
SLOW_REPLICATIONS, SLOW_SEARCHED, SLOW_MEASURED = 4, 300, 600
"""what only the reference engine runs gets fewer runs, no search of its capacity in runs of more requests than the first
number, and no run at all (levers only) with more than the second"""
STEP, REFINED = 1.25, 3
MOST_FACTOR, LEAST_FACTOR = 16.0, 1 / 16


@dataclass(frozen=True)
class Bench:
    """Where trials are made: the scenario's file with what the user changed about it."""

    path: str
    variant: tuple[str, ...] = ()
    sets: tuple[str | tuple, ...] = ()
    seed: int | None = None

    def scenario(self, more: Sets = ()) -> Scenario:
        """The scenario with more overrides. Raises ScenarioError."""
        seed = [] if self.seed is None else [("run.seed", self.seed, "--seed")]
        variant: Variants = self.variant
        return load(self.path, variant=variant, sets=[*self.sets, *seed, *more])

    def trial(self, more: Sets = (), quick: bool = False) -> Trial:
        """The same, measured when asked. Raises ScenarioError for what can't be run as written.

        quick : also for what takes too long: more than SLOW_MEASURED requests, and only the reference engine runs it.
        """
        return Trial(prepare(self.scenario(more)), quick=quick)


class Trial:
    """One deployment under the scenario's traffic. most : replications at most. quick : see Bench.trial."""

    def __init__(self, prepared: Prepared, most: int = MOST_REPLICATIONS, quick: bool = False):
        self.prepared = prepared
        self.seed = prepared.scenario.spec.run.seed
        long = (prepared.scenario.spec.workload.requests or SLOW_MEASURED + 1) > SLOW_MEASURED
        first = (compiled(prepared) if quick and long else prepared).run(self.seed, 0)
        self.facts = Facts(prepared, first)
        self.alike = alike(prepared)
        self.replications = self._replications(most)

    def _replications(self, most: int) -> int:
        requests = len(self.facts.table)
        if self.alike:
            return 1
        if self.slow and requests > SLOW_SEARCHED:
            return min(most, SLOW_REPLICATIONS)
        return min(most, max(FEWEST_REPLICATIONS, min(MOST_REPLICATIONS, REQUESTS // max(1, requests))))

    @property
    def slow(self) -> bool:
        """Does the reference engine run it?"""
        return self.facts.result.engine == "reference"

    @property
    def searchable(self) -> bool:
        """Can its capacity be searched in a reasonable time?"""
        return not self.slow or len(self.facts.table) <= SLOW_SEARCHED

    @cached_property
    def curve(self) -> Loads:
        """Its runs by load."""
        return Loads(self.prepared, self.facts.objectives, self.facts.rate_per_s, self.replications, self.seed)

    def margins(self, factor: float = 1.0) -> list[float]:
        """Least margin over the objectives (share less what is asked), a replication each."""
        return [run["margin"] for run in self.curve.at(factor)]

    def first_margin(self, factor: float) -> float:
        """The margin of the first replication alone, for a first look."""
        if factor == 1.0:
            return least_margin(self.facts.result, self.facts.objectives)
        return self.curve.first(factor)["margin"]

    @cached_property
    def crossings(self) -> list[float]:
        """The load at which each replication leaves the SLO, as a multiple of today's.

        0 where none that was tried is kept, the highest that was tried where all are.
        """
        factor = 1.0
        self.curve.at(factor)
        while any(_never_broken(self.curve, r) for r in range(self.replications)) and factor < MOST_FACTOR:
            factor *= STEP
            self.curve.at(factor)
        factor = min(self.curve.points)
        while any(_never_kept(self.curve, r) for r in range(self.replications)) and factor > LEAST_FACTOR:
            factor /= STEP
            self.curve.at(factor)
        for _ in range(REFINED):
            if (between := self.curve.undecided()) is None:
                break
            self.curve.at(between)
        return [_crossing(self.curve, r) for r in range(self.replications)]

    @property
    def bounded(self) -> str | None:
        """Why its capacity is only a bound, in words, where a replication keeps the SLO at every load tried, or at none."""
        if not self.searchable:
            return None
        crossings = self.crossings
        if any(_never_broken(self.curve, r) for r in range(self.replications)):
            return f"at least: the SLO holds at every load tried, up to {max(self.curve.points):.3g} times this one"
        if 0.0 in crossings:
            return f"too high: the SLO holds at no load tried, down to {min(self.curve.points):.3g} times this one"
        return None

    @cached_property
    def capacity(self) -> stats.Interval | None:
        """Requests a second that keep the SLO; None where it was not searched."""
        if not self.searchable:
            return None
        return stats.t_interval([c * self.facts.rate_per_s for c in self.crossings])

    @cached_property
    def utilisation(self) -> float:
        """Throughput at the load as it is over what the hardware carries at most (planner/utilisation.py), at most 1."""
        full = saturated_tokens_per_s(self.prepared.scenario, self.seed)
        return min(1.0, steady_tokens_per_s(self.facts.result) / full) if full else 1.0


class Loads(Curve):
    """A curve of margins alone, for many loads in little time."""

    def _run(self, faster: Prepared, replication: int) -> dict[str, Any]:
        return {"margin": least_margin(faster.run(self.seed, replication), self.objectives)}


def difference(base: Trial, other: Trial, values: Sequence[float], others: Sequence[float]) -> stats.Interval:
    """Other less base, paired over the replications that both have."""
    runs = min(base.replications, other.replications)
    return stats.paired(values[:runs], others[:runs])


def compiled(prepared: Prepared) -> Prepared:
    """The same for the compiled engine alone, which refuses what it does not know."""
    return Prepared(changed(prepared.scenario, {"run.engine": "compiled"}), prepared.servers)


def least_margin(result: Result, objectives: Sequence[slo.Objective]) -> float:
    """Share less what is asked, of the objective where that is least."""
    kept = [slo.kept(result.table, one, result.measured) for one in objectives]
    return min((k["share"] - k["asked"] for k in kept if k["share"] is not None), default=0.0)


def _margins(curve: Curve, replication: int) -> list[float]:
    """By rising load."""
    known = (curve.points[f][replication]["margin"] for f in sorted(curve.points))
    return [margin for margin in known if margin is not None]


def _never_broken(curve: Curve, replication: int) -> bool:
    return all(margin >= 0 for margin in _margins(curve, replication))


def _never_kept(curve: Curve, replication: int) -> bool:
    known = _margins(curve, replication)
    return bool(known) and known[0] < 0


def _crossing(curve: Curve, replication: int) -> float:
    found = curve.crossing(replication)
    if found is not None:
        return found
    return max(curve.points) if _never_broken(curve, replication) else 0.0
