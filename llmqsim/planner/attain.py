"""Does a deployment keep its SLO? Decided by as few runs as it takes, for every objective at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmqsim.metrics import slo, stats
from llmqsim.metrics.stability import stability
from llmqsim.result import Result
from llmqsim.simulation import Prepared

KEPT, BROKEN, OPEN = "kept", "broken", "open"


@dataclass(frozen=True)
class Sample:
    """One run: for each objective how many were asked and met, and the row by row outcome where one run is all there is."""

    met: tuple[int, ...]
    asked: tuple[int, ...]
    verdict: str
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
        """KEPT: every interval lies at or above its share and no run is overloaded; BROKEN: one lies below, or overload;
        OPEN: more runs may tell."""
        intervals = [self.interval(i) for i in range(len(self.objectives))]
        told = [(i, one.share) for i, one in zip(intervals, self.objectives, strict=True) if i is not None]
        if any(i.high is not None and i.high < share for i, share in told):
            return BROKEN
        overloaded = sum(s.verdict == "overloaded" for s in self.samples)
        if overloaded and self.verdict == "overloaded":
            return BROKEN
        if overloaded or not told or any(i.low is None or i.low < share for i, share in told):
            return OPEN
        return KEPT

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


class Probe:
    """Runs of deployments under one seed, each decided as soon as it can be. It remembers how many runs it took.

    alike : every replication is the same traffic, so that one run is all there is.
    """

    def __init__(self, seed: int, alike: bool = False):
        self.seed, self.alike, self.runs = seed, alike, 0

    def decide(self, prepared: Prepared, fewest: int = 2, most: int = 6, first: int = 0) -> Attained:
        """Replicate until it is kept or broken, or `most` runs. first : number of the first replication."""
        found: Attained | None = None
        for replication in range(first, first + (1 if self.alike else most)):
            result = prepared.run(self.seed, replication)
            self.runs += 1
            found = found or Attained(slo.objectives(result.promise, result.table.classes))
            found.samples.append(sample(result, found.objectives, self.alike))
            found.last = result
            if len(found.samples) >= fewest and found.judged != OPEN:
                break
        assert found is not None
        return found


def sample(result: Result, objectives: list[slo.Objective], keep: bool) -> Sample:
    """Count one run. keep : also row by row, where one run is all there is."""
    table, rows = result.table, result.measured
    asked = [one.asked(table, rows) for one in objectives]
    met = [one.met(table) & mask for one, mask in zip(objectives, asked, strict=True)]
    series = None
    if keep:
        order = np.argsort(table.arrival_ns, kind="stable")
        series = tuple(m[order][a[order]] for m, a in zip(met, asked, strict=True))
    verdict = stability(table, result.due)["verdict"]
    return Sample(tuple(int(m.sum()) for m in met), tuple(int(a.sum()) for a in asked), verdict, series)
