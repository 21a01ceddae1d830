"""A scenario with some levers pulled, and what it gives: attainment at the load as it is, and what the SLO allows.

All trials share their random numbers, replication by replication, so that differences are known better than figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from llmqsim.metrics import slo, stats
from llmqsim.metrics.stability import of_run
from llmqsim.planner.advise.facts import Facts
from llmqsim.planner.attain import KEPT, Probe
from llmqsim.planner.capacity import Curve
from llmqsim.planner.figures import Seen, see
from llmqsim.planner.replicate import alike
from llmqsim.planner.settle import STEP as STEP_LONGER
from llmqsim.planner.settle import Length, longer, why_fixed
from llmqsim.planner.utilisation import saturated_tokens_per_s, steady_tokens_per_s
from llmqsim.planner.vary import changed
from llmqsim.result import Result
from llmqsim.scenario.load import Scenario, Sets, Variants, load
from llmqsim.simulation import Prepared, prepare

MOST_REPLICATIONS, FEWEST_REPLICATIONS = 10, 5
REQUESTS = 60_000
"""over all replications of a load: what decides how many there are"""
SLOW_REPLICATIONS, SLOW_SEARCHED, SLOW_MEASURED = 4, 300, 600
"""what only the reference engine runs gets fewer runs, no search of its capacity in runs of more requests than the
second number, and no run at all (levers only) with more than the third"""
CHECK_RUNS = 10
STEP, REFINED = 1.25, 2
MOST_FACTOR, LEAST_FACTOR = 4.0, 1 / 16
UNSETTLED = -0.001
"""margin of a run above today's load that keeps the SLO and does not settle: it would not for long"""
MOST_TIMES, MOST_REQUESTS = 16, 20_000
"""how much longer runs may be made until they settle, and up to how many requests"""


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

    def trial(self, more: Sets = (), quick: bool = False, same: bool | None = None) -> Trial:
        """The same, measured when asked. Raises ScenarioError for what can't be run as written.

        quick : also for what takes too long: more than SLOW_MEASURED requests, and only the reference engine runs it.
        same : are all replications the same traffic, where that is known already?
        """
        return Trial(prepare(self.scenario(more)), quick=quick, same=same)


class Trial:
    """One deployment under the scenario's traffic. most : replications at most. quick, same : see Bench.trial."""

    def __init__(
        self, prepared: Prepared, most: int = MOST_REPLICATIONS, quick: bool = False, same: bool | None = None
    ):
        self.prepared = prepared
        self.seed = prepared.scenario.spec.run.seed
        long = (prepared.scenario.spec.workload.requests or SLOW_MEASURED + 1) > SLOW_MEASURED
        first = (compiled(prepared) if quick and long else prepared).run(self.seed, 0)
        self.facts = Facts(prepared, first)
        self.alike = alike(prepared) if same is None else same
        self.replications = self._replications(most)
        self._seen: list[Seen] | None = None

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

    def seen(self, edges: np.ndarray | None) -> list[Seen]:
        """What a comparison needs of each replication at the load as it is. edges : of length groups (figures.py).

        The same runs give the margins of that load.
        """
        if self._seen is None:
            self._seen, margins = [], []
            for replication in range(self.replications):
                result = self.prepared.run(self.seed, replication) if replication else self.facts.result
                self._seen.append(see(result, None, edges))
                margins.append({"margin": least_margin(result, self.facts.objectives)})
            self.curve.points.setdefault(1.0, margins)
        return self._seen

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
        for factor in self.curve.around():
            self.curve.at(factor)
        factor = max(self.curve.points)
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
        """Why its capacity is only a bound, where a replication keeps the SLO at every load tried, or at none."""
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
    def keeps(self) -> bool:
        """Is it shown, on the replications of the search, that the SLO is kept?"""
        runs = max(CHECK_RUNS, self.replications) if not self.slow else self.replications
        return self.probe().decide(self.prepared, fewest=min(5, runs), most=runs).judged == KEPT

    def probe(self) -> Probe:
        """What decides whether it keeps the SLO, by runs that are made longer within the limits of an advice."""
        return Probe(self.seed, self.alike, Brief(self.prepared.scenario, len(self.facts.table)))

    @cached_property
    def utilisation(self) -> float:
        """Throughput at the load as it is over what the hardware carries at most (utilisation.py), at most 1."""
        full = saturated_tokens_per_s(self.prepared.scenario, self.seed)
        return min(1.0, steady_tokens_per_s(self.facts.result) / full) if full else 1.0


class Brief(Length):
    """The length of runs that judge one of many deployments: up to MOST_REQUESTS, where `size` has more patience."""

    @property
    def most(self) -> int:
        """The largest multiple; one step is allowed whatever the scenario says."""
        return 1 if self.fixed else max(STEP_LONGER, min(super().most, MOST_REQUESTS // self.requests))


class Loads(Curve):
    """A curve of margins alone, for many loads in little time. The first replication of a load is run once."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.firsts: dict[float, dict[str, Any]] = {}

    def first(self, factor: float) -> dict[str, Any]:
        """The first replication alone."""
        factor = round(factor, 6)
        if factor in self.points:
            return self.points[factor][0]
        if factor not in self.firsts:
            self.firsts[factor] = self._held(factor, self._faster(factor), 0)
        return self.firsts[factor]

    def at(self, factor: float) -> list[dict[str, Any]]:
        """The runs at one load, once."""
        factor = round(factor, 6)
        if factor not in self.points:
            faster, first = self._faster(factor), self.first(factor)
            self.points[factor] = [first, *(self._held(factor, faster, r) for r in range(1, self.replications))]
        return self.points[factor]

    def _held(self, factor: float, faster: Prepared, replication: int) -> dict[str, Any]:
        """The margin of a run; above today's load none is kept that shows no steady state."""
        result = faster.run(self.seed, replication)
        margin = least_margin(result, self.objectives)
        if factor > 1 and margin >= 0 and of_run(result)["verdict"] != "stable":
            margin = UNSETTLED
        return {"margin": margin}

    def around(self) -> tuple[float, ...]:
        """Today's load, and two between which the first replication leaves the SLO: where all are worth running."""
        keeps = self.first(1.0)["margin"] >= 0
        step, last = (STEP, MOST_FACTOR) if keeps else (1 / STEP, LEAST_FACTOR)
        before, factor = 1.0, step
        while (self.first(factor)["margin"] >= 0) == keeps and (factor < last) == keeps and factor != last:
            before, factor = factor, factor * step
        return tuple(sorted({1.0, before, factor}))


def settled(bench: Bench, base: Trial) -> tuple[Bench, Trial, str | None]:
    """The bench with runs long enough to tell a steady state from a backlog, its trial, and a note if they are longer.

    A run that did not settle is no evidence: all are made twice as long, again and again, within MOST_TIMES and
    MOST_REQUESTS.
    """
    written, requests, times = base.prepared.scenario, len(base.facts.table), 1
    given = bench.sets
    while _undecided(base) and not base.slow and why_fixed(written) is None:
        times *= 2
        if times > MOST_TIMES or times * requests > MOST_REQUESTS:
            break
        bench = replace(bench, sets=(*given, *_lengths(longer(written, times))))
        base = bench.trial()
    if len(base.facts.table) == requests:
        return bench, base, None
    told = (
        f"runs lengthened to {len(base.facts.table):,} requests (the scenario makes {requests:,}, which do not settle)"
    )
    return bench, base, told


def _lengths(scenario: Scenario) -> list[tuple[str, Any]]:
    """How long its runs are, as overrides."""
    spec = scenario.spec
    values = {"workload.requests": spec.workload.requests, "workload.duration": spec.workload.duration}
    values |= {"run.until": spec.run.until}
    values |= {f"workload.classes.{n}.requests": one.requests for n, one in (spec.workload.classes or {}).items()}
    return [(key, value) for key, value in values.items() if value is not None]


def _undecided(trial: Trial) -> bool:
    return of_run(trial.facts.result)["verdict"] == "unsettled"


def difference(base: Trial, other: Trial, values: Sequence[float], others: Sequence[float]) -> stats.Interval:
    """Other less base, paired over the replications that both have."""
    runs = min(base.replications, other.replications)
    return stats.paired(values[:runs], others[:runs])


def compiled(prepared: Prepared) -> Prepared:
    """The same for the compiled engine alone, which refuses what it does not know."""
    return Prepared(changed(prepared.scenario, {"run.engine": "compiled"}), prepared.servers)


def least_margin(result: Result, objectives: Sequence[slo.Objective]) -> float:
    """Share less what is asked, of the objective where that is least."""
    shares = [(slo.stand(result, one).share, one.share) for one in objectives]
    return min((share - asked for share, asked in shares if share is not None), default=0.0)


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
