"""Many runs of one scenario: independent replications, a fixed number or until a share is known well enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from llmqsim.metrics import slo, stats
from llmqsim.metrics.stability import of_run
from llmqsim.requests import GIVEN
from llmqsim.result import Result
from llmqsim.scenario.build import build_workload
from llmqsim.simulation import Prepared

Figures = TypeVar("Figures")

FEWEST = 5
"""replications before an interval may end a search: fewer are too easily alike by chance"""
HALF_POINT = 0.005


def replicate(
    prepared: Prepared, measure: Callable[[Result], Figures], replications: Iterable[int], seed: int | None = None
) -> Iterator[Figures]:
    """Yield what `measure` makes of each replication, one run at a time, so that memory holds one run.

    seed : None for the scenario's own.
    """
    seed = prepared.scenario.spec.run.seed if seed is None else seed
    for replication in replications:
        yield measure(prepared.run(seed, replication))


def alike(prepared: Prepared) -> bool:
    """Are all replications the same traffic (a replayed trace, constant gaps and lengths)? Then they add nothing."""
    seed = prepared.scenario.spec.run.seed
    one, two = (build_workload(prepared.scenario, prepared.servers, seed, r).table for r in (0, 1))
    if len(one) != len(two):
        return False
    prefixes = [t.prefixes.hashes if t.prefixes is not None else np.zeros(0) for t in (one, two)]
    return all(np.array_equal(getattr(one, c), getattr(two, c)) for c in GIVEN) and np.array_equal(*prefixes)


@dataclass(frozen=True)
class Kept:
    """How many requests of one run were promised something and how many got it, with the run's verdict."""

    met: int
    asked: int
    verdict: str


def kept(result: Result, objective: Callable[[Result], np.ndarray] | None = None) -> Kept:
    """Count one run. objective : mask of the requests that meet it (bool[rows]); None for the scenario's SLO."""
    seen = slo.stand_all(result)
    met = seen.met if objective is None else objective(result) & seen.asked
    verdict = of_run(result)["verdict"]
    return Kept(int(met.sum()), int(seen.asked.sum()), verdict)


@dataclass
class Attained:
    """The attainment over the replications so far."""

    runs: list[Kept] = field(default_factory=list)

    @property
    def interval(self) -> stats.Interval:
        """Share of arrivals that met the SLO. Raises ValueError where nobody arrived."""
        return stats.share_interval([r.met for r in self.runs], [r.asked for r in self.runs])

    @property
    def verdict(self) -> str:
        """stable, overloaded or unsettled, over all replications."""
        return stats.together([r.verdict for r in self.runs])


def until_known(
    prepared: Prepared,
    half_width: float = HALF_POINT,
    fewest: int = FEWEST,
    most: int = 100,
    budget_s: float | None = None,
    first: int = 0,
    seed: int | None = None,
) -> Attained:
    """Replicate until the attainment is known to within +- half_width, or the budget is spent.

    Looking after every replication ends the search a little early when runs happen to agree; with FEWEST to begin with
    and a floor under the interval (stats.share_interval) the coverage stays within what docs/compare.md says.
    most, budget_s : replications, seconds of wall time. first : number of the first replication.
    """
    found, started = Attained(), time.monotonic()
    for run in replicate(prepared, kept, range(first, first + most), seed):
        found.runs.append(run)
        if len(found.runs) >= fewest and stats.precise(found.interval, half_width):
            break
        if budget_s is not None and time.monotonic() - started > budget_s:
            break
    return found
