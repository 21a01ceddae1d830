"""size: the smallest, or cheapest, deployment whose interval clears the SLO, and what one replica less gives.

The number of replicas is bracketed from the arithmetic of bounds.py and bisected; each step is decided by as few runs as
it takes (attain.Probe), all on the same traffic. What the search has chosen is then judged again on fresh replications, so
that the luck of the search is not part of the answer. Combinations of GPU, tensor parallelism, options and policies are
tried from the least cost that arithmetic allows, and left out once that exceeds the best one found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llmqsim.metrics.slo import meets, objectives
from llmqsim.planner.attain import BROKEN, KEPT, Attained, Probe
from llmqsim.planner.bounds import Bounds, Mix
from llmqsim.planner.limits import REASONS, ceiling
from llmqsim.planner.replicate import alike
from llmqsim.planner.vary import at_load, loops, with_replicas
from llmqsim.scenario.build import build_workload
from llmqsim.scenario.load import Scenario
from llmqsim.simulation import Prepared, promise

FRESH = 1000
"""number of the first replication that the search has not seen"""
MOST_REPLICAS = 1024
SEARCH_RUNS, JUDGE_RUNS = 5, 20
JUDGED_REQUESTS = 200_000
HEADROOM_STEPS = (1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class Effort:
    """How much may be spent. search, judge : most runs to decide a step of the search, and the answer itself."""

    search: int = SEARCH_RUNS
    judge: int = JUDGE_RUNS
    most_replicas: int = MOST_REPLICAS
    headroom: bool = True


@dataclass(frozen=True)
class Sized:
    """The answer for one combination. replicas : None where none was found. one_less : None with one replica."""

    prepared: Prepared
    bounds: Bounds
    replicas: int | None
    attained: Attained | None
    one_less: Attained | None
    reason: str | None
    sentence: str
    tpot_s: float | None


class Search:
    """The smallest number of replicas of one combination."""

    def __init__(self, prepared: Prepared, effort: Effort):
        self.prepared, self.effort = prepared, effort
        seed = prepared.scenario.spec.run.seed
        self.probe = Probe(seed, alike(prepared))
        self.table = build_workload(prepared.scenario, prepared.servers, seed, 0).table
        self.objectives = objectives(promise(prepared.scenario), self.table.classes)
        self.bounds = Bounds(prepared.servers.deployment, self.table)
        self.seen: dict[int, Attained] = {}
        slo = prepared.scenario.spec.slo
        self.tpot_s = None if slo is None else slo.tpot or slo.tpot_p99 or slo.tpot_p95 or slo.tpot_p90

    @property
    def rate_per_s(self) -> float | None:
        """Arrivals a second, as written where it is one number; None where they depend on the run."""
        return arrival_rate(self.prepared.scenario, self.bounds.mix)

    @property
    def judge_runs(self) -> int:
        """Most runs to judge the answer by: more where they are short."""
        return judge_runs(self.effort, len(self.table))

    @property
    def fewest(self) -> int:
        """Replicas below which arithmetic says overload; some 10 % of room is left for its errors."""
        rate = self.rate_per_s
        return 1 if rate is None else max(1, math.ceil(0.9 * rate / self.bounds.capacity_per_s))

    def bracket(self, most: int) -> Sized:
        """The smallest number up to `most` that the search finds kept, not judged yet; the reason where there is none."""
        best = ceiling(self.bounds, self.prepared.servers.deployment, self.table, self.objectives)
        if best.reason is not None:
            return self._sized(None, None, None, best.reason, best.sentence)
        found = self._bracket(most)
        if found is not None:
            return self._sized(found, self.seen[found], self.seen.get(found - 1), None, "")
        last = self.seen[max(self.seen)]
        reason = "most_replicas_reached" if last.judged == BROKEN else "not_decided"
        asked = last.objectives[last.worst].share
        told = f"{REASONS[reason]}: {max(self.seen):,} replicas give {share_text(last)}, {100 * asked:g} % are asked for"
        return self._sized(None, last, None, reason, told)

    def judge(self, replicas: int) -> Sized:
        """The answer next to `replicas` that fresh replications confirm."""
        replicas, attained, less = self._judge(replicas)
        if attained.judged == KEPT:
            return self._sized(replicas, attained, less, None, "")
        told = f"{REASONS['not_decided']}: {replicas} replicas give {share_text(attained)}"
        return self._sized(None, attained, less, "not_decided", told)

    def answer(self) -> Sized:
        """Both: search, then judge."""
        found = self.bracket(self.effort.most_replicas)
        return found if found.replicas is None else self.judge(found.replicas)

    def _sized(
        self, replicas: int | None, attained: Attained | None, less: Attained | None, reason: str | None, sentence: str
    ) -> Sized:
        return Sized(self.prepared, self.bounds, replicas, attained, less, reason, sentence, self.tpot_s)

    def at(self, replicas: int) -> Attained:
        """What so many replicas attain, decided once."""
        if replicas not in self.seen:
            self.seen[replicas] = self.probe.decide(with_replicas(self.prepared, replicas), most=self.effort.search)
        return self.seen[replicas]

    def _bracket(self, most: int) -> int | None:
        """The smallest number that is kept, by doubling steps from the guess by means, then bisection; None: none is."""
        rate = self.rate_per_s
        guess = None if rate is None else self.bounds.replicas_by_means(rate, self.tpot_s)
        low, high = self.fewest - 1, min(max(guess or 1, self.fewest), most)
        step = max(1, round(0.08 * high))
        if self.at(high).judged == KEPT:
            while high - step > low:  # downwards, while it is still kept
                if self.at(high - step).judged != KEPT:
                    low = high - step
                    break
                high, step = high - step, 2 * step
        else:
            while self.at(high).judged != KEPT:
                if high == most:
                    return None
                low, high, step = high, min(high + step, most), 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.at(middle).judged == KEPT else (middle, high)
        return high

    def _judge(self, found: int) -> tuple[int, Attained, Attained | None]:
        """The number that fresh replications confirm, with one less that they do not; it moves by single replicas."""
        fresh: dict[int, Attained] = {}

        def at(replicas: int) -> Attained:
            if replicas not in fresh:
                servers = with_replicas(self.prepared, replicas)
                first = 0 if self.probe.alike else FRESH
                fresh[replicas] = self.probe.decide(servers, fewest=5, most=self.judge_runs, first=first)
            return fresh[replicas]

        while at(found).judged != KEPT and found < self.effort.most_replicas:
            found += 1
        while found > 1 and at(found - 1).judged == KEPT:
            found -= 1
        return found, at(found), at(found - 1) if found > 1 else None

    def headroom(self, replicas: int) -> float | None:
        """How many more requests per second the answer carries within the SLO; None where there is no rate."""
        rate = self.rate_per_s
        if rate is None:
            return None
        return (headroom_factor(lambda factor: self._kept_at(replicas, factor)) - 1) * rate

    def _kept_at(self, replicas: int, factor: float) -> bool:
        servers = with_replicas(self.prepared, replicas)
        faster = Prepared(at_load(servers.scenario, factor), servers.servers)
        return self.probe.decide(faster, most=self.effort.search).judged == KEPT


def arrival_rate(scenario: Scenario, mix: Mix) -> float | None:
    """Arrivals a second, as written where it is one number; None where they depend on the run."""
    workload = scenario.spec.workload
    if loops(scenario):
        return None
    written = None if workload.trace is not None else getattr(workload.arrivals, "rate", None)
    return written or mix.rate_per_s


def judge_runs(effort: Effort, requests: int) -> int:
    """Most runs to judge an answer by: more where they are short."""
    return max(effort.judge, min(3 * effort.judge, JUDGED_REQUESTS // max(1, requests)))


def headroom_factor(kept_at: Callable[[float], bool]) -> float:
    """The largest load, as a multiple of today's, that is kept: steps, then two bisections."""
    low, high = 1.0, None
    for factor in HEADROOM_STEPS:
        if kept_at(factor):
            low = factor
        else:
            high = factor
            break
    for _ in range(2):
        if high is None:
            break
        middle = (low + high) / 2
        low, high = (middle, high) if kept_at(middle) else (low, middle)
    return low


def share_text(found: Attained) -> str:
    """An attainment in words, for a sentence."""
    told = found.told()
    if told["mean"] is None:
        return "no request was asked"
    low = "" if told["low"] is None else f" [{100 * told['low']:.1f}, {100 * told['high']:.1f}]"
    stable = "" if told["stability"] == "stable" else f", {told['stability']}"
    return f"{told['objective']} {100 * told['mean']:.1f} %{low}{stable}"


def binds(sized: Sized) -> dict[str, Any]:
    """What is short at one replica less (or, with one, at the answer): the target that is missed, and what waits for what."""
    seen = sized.one_less or sized.attained
    if seen is None or seen.last is None:
        return {"target": None, "resource": None}
    one, result = seen.objectives[seen.worst], seen.last
    rows = one.asked(result.table, result.measured)
    shares = {t: float((meets(result.table, t, s) & rows).sum()) for t, s in one.limits_s.items()}
    target = min(shares, key=lambda t: shares[t])
    waits = result.summary()["waiting_for"]["largest"]
    resource = "step_time" if target == "tpot_s" else waits
    return {"target": target.removesuffix("_s"), "resource": resource, "limit": sized.bounds.binding.name}
