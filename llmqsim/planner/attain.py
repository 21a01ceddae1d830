"""Does a deployment keep its SLO? Decided by as few runs as it takes, for every objective at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from llmqsim.metrics import slo, stats
from llmqsim.metrics.stability import of_run
from llmqsim.planner.settle import STEP, Length
from llmqsim.result import Result
from llmqsim.scenario.build import build_workload
from llmqsim.simulation import Prepared

Size = TypeVar("Size")
KEPT, BROKEN, OPEN = "kept", "broken", "open"
FRESH = 1000
"""number of the first replication that no search has seen"""
LEAST_JUDGED = 5
"""replications that judge an answer, at least"""


@dataclass(frozen=True)
class Sample:
    """One run: for each objective how many could be judged and met, and the outcomes where one run is all there is."""

    met: tuple[int, ...]
    asked: tuple[int, ...]
    verdict: str
    undecided: tuple[int, ...]
    """of each objective: still under way when the run ended, and not late yet"""
    series: tuple[np.ndarray, ...] | None = None


@dataclass
class Attained:
    """How a deployment keeps its objectives, over the runs so far."""

    objectives: list[slo.Objective]
    samples: list[Sample] = field(default_factory=list)
    last: Result | None = None

    def interval(self, number: int) -> stats.Interval | None:
        """Attainment of one objective; None where nobody was asked."""
        hits, totals = ([s.met[number] for s in self.samples], [s.asked[number] for s in self.samples])
        if not sum(totals):
            return None
        if self.samples[0].series is not None:
            return of_one_run(self.samples[0].series[number])
        return stats.share_interval(hits, totals)

    @property
    def verdict(self) -> str:
        """Stability over the runs."""
        return stats.together([s.verdict for s in self.samples])

    @property
    def judged(self) -> str:
        """KEPT: every interval lies at or above its share, and the runs settled; BROKEN: one lies below, or overload;
        OPEN: more or longer runs may tell."""
        if self.verdict == "overloaded" or BROKEN in (told for told, _ in self._judged()):
            return BROKEN
        return KEPT if self.clear and self.settled else OPEN

    @property
    def clear(self) -> bool:
        """Does every interval lie at or above its share, whatever the backlog does?"""
        told = self._judged()
        return bool(told) and all(one == KEPT for one, _ in told)

    @property
    def settled(self) -> bool:
        """Is it known that no backlog grows? Most runs must say so, and none the opposite."""
        return self.verdict == "stable" and all(s.verdict != "overloaded" for s in self.samples)

    @property
    def too_short(self) -> bool:
        """Is it open for want of the backlog verdict, or of answers still under way? Longer runs tell, more of them don't."""
        return self.judged == OPEN and (self.clear and not self.settled or self.under_way)

    @property
    def under_way(self) -> bool:
        """Were too many requests still under way, and not late yet, when the runs ended?"""
        left = [sum(s.undecided[i] for s in self.samples) for i in range(len(self.objectives))]
        due = [n + sum(s.asked[i] for s in self.samples) for i, n in enumerate(left)]
        return any(n > slo.MOST_UNDECIDED * d for n, d in zip(left, due, strict=True))

    @property
    def why_open(self) -> str:
        """Why it is neither kept nor broken, a phrase; empty where it is."""
        if self.judged != OPEN:
            return ""
        if self.clear:
            calm = sum(s.verdict == "stable" for s in self.samples)
            return f"{calm} of {len(self.samples)} runs show that no backlog grows"
        return next((why for told, why in self._judged() if told == OPEN), "no request was asked")

    def _judged(self) -> list[tuple[str, str]]:
        """`judge` of the objectives that anybody was due for."""
        due = [i for i in range(len(self.objectives)) if any(s.asked[i] + s.undecided[i] for s in self.samples)]
        return [self.judge(i) for i in due]

    def judge(self, number: int) -> tuple[str, str]:
        """KEPT, BROKEN or OPEN, and why: one objective, whatever the runs' stability."""
        met, asked, left = (sum(getattr(s, n)[number] for s in self.samples) for n in ("met", "asked", "undecided"))
        return judge(self.interval(number), self.objectives[number].share, met, asked, left)

    @property
    def worst(self) -> int:
        """Number of the objective with the least margin."""

        def margin(number: int) -> float:
            found = self.interval(number)
            return math.inf if found is None else found.mean - self.objectives[number].share

        return min(range(len(self.objectives)), key=margin)

    def told(self) -> dict[str, Any]:
        """mean, low, high of the objective with the least margin, its name, the share asked for, and every objective."""
        worst = self.worst
        every = {
            one.label: {"asked": one.share, **_limits(self.interval(i))} for i, one in enumerate(self.objectives)
        }
        return {
            **_limits(self.interval(worst)),
            "objective": self.objectives[worst].label,
            "asked": self.objectives[worst].share,
            "runs": len(self.samples),
            "stability": self.verdict,
            "judged": self.judged,
            "why_open": self.why_open,
            "objectives": every,
        }


def _limits(found: stats.Interval | None) -> dict[str, float | None]:
    return {"mean": None, "low": None, "high": None} if found is None else {
        "mean": found.mean, "low": found.low, "high": found.high
    }  # fmt: skip


def of_one_run(outcomes: np.ndarray) -> stats.Interval:
    """The share in one run (bool[n] in order of arrival), by batches, never narrower than independent requests allow."""
    hits, total = int(outcomes.sum()), len(outcomes)
    found = stats.batch_means(outcomes.astype(float), cut=False)
    low, high = stats.wilson(hits, total)
    if found is None or found.low is None or found.high is None:
        return stats.Interval(hits / total, None, None, 1, "one run")
    return stats.Interval(
        hits / total, max(0.0, min(low, found.low)), min(1.0, max(high, found.high)), found.n, found.method
    )


def judge(found: stats.Interval | None, wanted: float, met: int, asked: int, undecided: int) -> tuple[str, str]:
    """KEPT, BROKEN or OPEN, and why: the interval of a share against what is wanted.

    asked : requests that could be judged, of which `met` kept the SLO; undecided : the others that were due, under way
    and not late when the runs ended. More than slo.MOST_UNDECIDED of them leave it open, unless it is broken even with
    all of them on time.
    """
    due = asked + undecided
    if found is None or not due:
        return OPEN, "no data: no request was asked" if not due else "every request was still under way, and not late yet"
    if found.low is None or found.high is None:
        return OPEN, "one run has no interval; give --replications"
    if undecided > slo.MOST_UNDECIDED * due and not (found.high < wanted and (met + undecided) / due < wanted):
        return OPEN, f"{100 * undecided / due:.3g} % of the requests were still under way and not late yet: run longer"
    if found.high < wanted:
        return BROKEN, "the whole interval is below the limit"
    if found.low < wanted:
        return OPEN, "the interval straddles the limit: more requests or replications may tell"
    return KEPT, ""


class Probe:
    """Runs of deployments under one seed, each decided as soon as it can be. It remembers how many runs it took.

    alike : every replication is the same traffic, so that one run is all there is. length : of all runs, which are made
    longer where nothing but the backlog verdict is missing; None for what the first deployment's scenario says.
    """

    def __init__(self, seed: int, alike: bool = False, length: Length | None = None):
        self.seed, self.alike, self.runs, self._length = seed, alike, 0, length

    @property
    def length(self) -> Length:
        """Of the runs so far."""
        assert self._length is not None, "no deployment was looked at yet"
        return self._length

    def decide(self, prepared: Prepared, fewest: int = 2, most: int = 6, first: int = 0) -> Attained:
        """Replicate until it is kept or broken, or `most` runs; at the length limit it may stay open for want of a verdict.

        first : number of the first replication.
        """
        if self._length is None:
            requests = len(build_workload(prepared.scenario, prepared.servers, self.seed, first).table)
            self._length = Length(prepared.scenario, requests)
        while True:
            found = self._decide(self.length.of(prepared), fewest, most, first)
            if not found.too_short or not self.length.lengthen("whether the backlog grows is not known yet"):
                return found

    def holds_longer(self, prepared: Prepared, replication: int) -> bool:
        """Does one run that is STEP times as long keep every target and settle, too? True where no run can be longer."""
        times = min(self.length.most, STEP * self.length.times)
        if times == self.length.times:
            return True
        found = self._decide(self.length.of(prepared, times), 1, 1, replication, one_run=True)
        told = [(found.interval(i), one.share) for i, one in enumerate(found.objectives)]
        return found.settled and all(i is None or i.mean >= share for i, share in told)

    def _decide(self, prepared: Prepared, fewest: int, most: int, first: int, one_run: bool = False) -> Attained:
        found: Attained | None = None
        for replication in range(first, first + (1 if self.alike else most)):
            result = prepared.run(self.seed, replication)
            self.runs += 1
            self.length.saw(result.engine)
            found = found or Attained(slo.objectives(result.promise, result.table.classes))
            found.samples.append(sample(result, found.objectives, self.alike or one_run))
            found.last = result
            if self._decided(found, fewest):
                break
        assert found is not None
        return found

    def _decided(self, found: Attained, fewest: int) -> bool:
        """Is there nothing that another run of this length would add?"""
        if len(found.samples) < fewest:
            return False
        return found.judged != OPEN or (found.too_short and self.length.times < self.length.most)


class Fresh(Generic[Size]):
    """Deployments by their size on replications that the search has not seen, all judged by runs of one length.

    servers : of a size. most : runs to judge one by, asked anew as runs become longer.
    """

    def __init__(self, probe: Probe, servers: Callable[[Size], Prepared], most: Callable[[], int]):
        self._probe, self._servers, self._most = probe, servers, most
        self._times, self._seen = probe.length.times, dict[Size, Attained]()

    def at(self, size: Size) -> Attained:
        """What it attains, decided once; anew where runs have become longer since and it was not broken."""
        if self._times != self._probe.length.times:
            self._seen = {one: seen for one, seen in self._seen.items() if seen.judged == BROKEN}
            self._times = self._probe.length.times
        if size not in self._seen:
            first = 0 if self._probe.alike else FRESH
            found = self._probe.decide(self._servers(size), fewest=LEAST_JUDGED, most=self._most(), first=first)
            self._seen[size] = found
        return self._seen[size]

    def confirmed(self, size: Size) -> bool:
        """Does a run that is several times as long keep it, too? Where it does not, runs become longer, if they can."""
        if self._probe.holds_longer(self._servers(size), FRESH - 1):
            return True
        return not self._probe.length.lengthen("a longer run does not confirm the answer")


def sample(result: Result, objectives: list[slo.Objective], keep: bool) -> Sample:
    """Count one run. keep : also row by row, where one run is all there is."""
    seen = [slo.stand(result, one) for one in objectives]
    return Sample(
        met=tuple(int(s.met.sum()) for s in seen),
        asked=tuple(int(s.asked.sum()) for s in seen),
        verdict=of_run(result)["verdict"],
        undecided=tuple(int(s.undecided.sum()) for s in seen),
        series=tuple(outcomes(result, one) for one in objectives) if keep else None,
    )


def outcomes(result: Result, one: slo.Objective) -> np.ndarray:
    """Who kept an objective, of those who can be judged, in the order in which they were due: bool[n]."""
    seen = slo.stand(result, one)
    order = np.argsort(one.start_ns(result.table), kind="stable")
    return seen.met[order][seen.asked[order]]
