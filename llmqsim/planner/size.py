"""size: the smallest, or cheapest, deployment whose interval clears the SLO, and what one replica less gives.

The number of replicas is bracketed from the arithmetic of bounds.py and bisected; each step is decided by as few runs as
it takes (attain.Probe), all on the same traffic. What the search has chosen is then judged again on fresh replications, so
that the luck of the search is not part of the answer. Combinations of GPU, tensor parallelism, options and policies are
tried from the least cost that arithmetic allows, and left out once that exceeds the best one found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from llmqsim.metrics.slo import objectives, stand
from llmqsim.planner.attain import BROKEN, KEPT, Attained, Fresh, Probe
from llmqsim.planner.bounds import Bounds
from llmqsim.planner.bracket import headroom_factor, smallest
from llmqsim.planner.demand import arrival_rate
from llmqsim.planner.limits import REASONS, ceiling
from llmqsim.planner.near_bound import MOST_TIMES, bound
from llmqsim.planner.replicate import alike
from llmqsim.planner.settle import Length, Tell, quiet
from llmqsim.planner.step_error import StepError, moved
from llmqsim.planner.vary import at_load, loops, with_replicas
from llmqsim.scenario.build import build_workload
from llmqsim.simulation import Prepared, promise

MOST, NOT_DECIDED, AT_BOUND = "most_replicas_reached", "not_decided", "target_at_bound"
MOST_REPLICAS = 1024
SEARCH_RUNS, JUDGE_RUNS = 5, 20
JUDGED_REQUESTS = 200_000
JUDGED_RUN = 10_000
"""requests of a run that judges an answer, at least (settle.py says how far runs may be lengthened)"""
LOOPS_START = 4
"""times as many for clients who wait for answers: they start together, and that burst is no part of what follows"""


@dataclass(frozen=True)
class Effort:
    """How much may be spent. search, judge : most runs to decide a step of the search, and the answer itself.

    climbs : also to numbers that bring little, where the target is near what any number reaches (near_bound.py).
    headroom, step_error : also how much more rate the answer carries, and how it moves with step times.
    """

    search: int = SEARCH_RUNS
    judge: int = JUDGE_RUNS
    most_replicas: int = MOST_REPLICAS
    headroom: bool = True
    climbs: bool = False
    step_error: bool = True


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
    """The smallest number of replicas of one combination.

    tell : takes lines for the status line. length : of its runs, where another search has found it already.
    """

    def __init__(self, prepared: Prepared, effort: Effort, tell: Tell = quiet, length: Length | None = None):
        self.prepared, self.effort = prepared, effort
        seed = prepared.scenario.spec.run.seed
        self.table = build_workload(prepared.scenario, prepared.servers, seed, 0).table
        self.length = length or Length(prepared.scenario, len(self.table), tell)
        self.probe = Probe(seed, alike(prepared), self.length)
        self.objectives = objectives(promise(prepared.scenario), self.table.classes)
        self.bounds = Bounds(prepared.servers.deployment, self.table)
        self.seen: dict[int, Attained] = {}
        self.bound = bound(self.bounds, prepared.servers.deployment, self.table, self.objectives)
        slo = prepared.scenario.spec.slo
        self.tpot_s = None if slo is None else slo.tpot or slo.tpot_p99 or slo.tpot_p95 or slo.tpot_p90

    @property
    def rate_per_s(self) -> float | None:
        """Arrivals a second, as written where it is one number; None where they depend on the run."""
        return arrival_rate(self.prepared.scenario, self.bounds.mix)

    @property
    def judge_runs(self) -> int:
        """Most runs to judge the answer by: more where they are short."""
        return judge_runs(self.effort, self.length.told().run)

    @property
    def fewest(self) -> int:
        """Replicas that arithmetic asks for at least: no answer has fewer, whatever a run shows. 1 where it knows no rate."""
        return self.bounds.fewest(self.rate_per_s, self.objectives)

    def bracket(self, most: int) -> Sized:
        """The smallest number up to `most` that the search finds kept, not judged yet; the reason where there is none."""
        best = ceiling(self.bounds, self.prepared.servers.deployment, self.table, self.objectives)
        if best.reason is not None:
            return self._sized(None, None, None, best.reason, best.sentence)
        if self.fewest > most:
            told = f"{REASONS[MOST]}: arithmetic asks for at least {self.fewest:,} replicas, {most:,} may be tried"
            return self._sized(None, None, None, MOST, told)
        most = min(most, self.worth_trying)
        found = smallest(lambda n: self.at(n).judged == KEPT, self._guess(most), self.fewest, most)
        if found is not None:
            return self._sized(found, self.seen[found], self.seen.get(found - 1), None, "")
        return self._nothing(self.at, self._guess(most), most)

    @property
    def worth_trying(self) -> int:
        """Replicas beyond which none are tried: where the target is near its bound, a few times what means say."""
        most = self.effort.most_replicas
        if self.bound is None or not self.bound.near or self.effort.climbs:
            return most
        return min(most, max(MOST_TIMES * self._guess(most), self.fewest))

    def judge(self, replicas: int) -> Sized:
        """The answer next to `replicas` that fresh, longer runs confirm, and that a run of STEP times their length does."""
        start = LOOPS_START if loops(self.prepared.scenario) else 1
        self.length.at_least(start * JUDGED_RUN, "to judge the answer by")
        fresh = Fresh(self.probe, lambda n: with_replicas(self.prepared, n), lambda: self.judge_runs)
        most = self.worth_trying
        while True:
            times = self.length.times
            found = smallest(lambda n: fresh.at(n).judged == KEPT, replicas, self.fewest, most)
            if found is None:
                return self._nothing(fresh.at, replicas, most)
            replicas, attained = found, fresh.at(found)
            less = fresh.at(found - 1) if found > 1 else None
            if times != self.length.times:
                continue  # runs have become longer on the way: what was decided before is judged by these, too
            if fresh.confirmed(found):
                return self._sized(found, attained, less, None, "")

    def answer(self) -> Sized:
        """Both: search, then judge."""
        found = self.bracket(self.effort.most_replicas)
        return found if found.replicas is None else self.judge(found.replicas)

    def step_error(self, replicas: int) -> StepError | None:
        """How the answer moves with step times; by fewer runs than the answer, each as long."""

        def answer(prepared: Prepared) -> tuple[int | None, str | None]:
            other = Search(prepared, self.effort, length=self.length)
            best = ceiling(other.bounds, prepared.servers.deployment, other.table, other.objectives)
            if best.reason is not None:
                return None, best.reason
            found = smallest(lambda n: other.at(n).judged == KEPT, replicas, other.fewest, self.effort.most_replicas)
            self.probe.runs += other.probe.runs
            return found, None if found else MOST

        return moved(self.prepared, answer)

    def at(self, replicas: int) -> Attained:
        """What so many replicas attain, decided once."""
        if replicas not in self.seen:
            self.seen[replicas] = self.probe.decide(with_replicas(self.prepared, replicas), most=self.effort.search)
        return self.seen[replicas]

    @property
    def climbed(self) -> dict[int, float]:
        """Replicas -> attainment of the objective that is nearest to its bound, of those that the search has tried."""
        label = None if self.bound is None else self.bound.objective
        number = next((i for i, one in enumerate(self.objectives) if one.label == label), 0)
        known = {n: seen.interval(number) for n, seen in self.seen.items()}
        return {n: found.mean for n, found in known.items() if found is not None}

    def why_less(self, replicas: int, less: Attained) -> str:
        """Why one less than `replicas` is no answer, a phrase; empty where its interval lies below the target."""
        if less.judged == KEPT:
            return f"arithmetic asks for {self.fewest:,}" if replicas <= self.fewest else "kept in these runs"
        return less.why_open

    def _guess(self, most: int) -> int:
        """Where to begin: what means say, from the least that may be answered on."""
        rate = self.rate_per_s
        means = None if rate is None else self.bounds.replicas_by_means(rate, self.tpot_s)
        return min(max(means or 1, self.fewest), most)

    def _nothing(self, at: Callable[[int], Attained], start: int, most: int) -> Sized:
        """No number is kept. What is known: of the smallest that lacks the backlog verdict alone, else of the largest."""
        number = smallest(lambda n: at(n).clear, start, self.fewest, most) or most
        seen = at(number)
        reason = MOST if seen.judged == BROKEN else NOT_DECIDED
        if self.bound is not None and self.bound.near and most < self.effort.most_replicas:
            told = self.bound.sentence(self.climbed)
            told = f"{REASONS[AT_BOUND]}: {told}. No more than {most:,} were tried; --max-replicas N tries up to N"
            return self._sized(None, seen, None, AT_BOUND, told)
        told = f"{number:,} replicas give {share_text(seen)}, {100 * seen.objectives[seen.worst].share:g} % are asked for"
        if reason == NOT_DECIDED:
            limit = self.length.fixed or f"runs were lengthened to {self.length.told().run:,} requests, the most"
            told += f": {seen.why_open}" + (f"; {limit}" if seen.too_short else "")
        clients = self.prepared.scenario.spec.workload.clients
        if clients is not None and clients.max_in_flight is not None:
            told += f"; clients keep at most {clients.max_in_flight:,} in flight (workload.clients.max_in_flight) with any number"
        return self._sized(None, seen, None, reason, f"{REASONS[reason]}: {told}")

    def _sized(
        self, replicas: int | None, attained: Attained | None, less: Attained | None, reason: str | None, sentence: str
    ) -> Sized:
        return Sized(self.prepared, self.bounds, replicas, attained, less, reason, sentence, self.tpot_s)

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


def judge_runs(effort: Effort, requests: int) -> int:
    """Most runs to judge an answer by: more where they are short."""
    return max(effort.judge, min(3 * effort.judge, JUDGED_REQUESTS // max(1, requests)))


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
    shares = {t: float(stand(result, replace(one, limits_s={t: s})).met.sum()) for t, s in one.limits_s.items()}
    target = min(shares, key=lambda t: shares[t])
    waits = result.summary()["waiting_for"]["largest"]
    resource = "step_time" if target == "tpot_s" else waits
    return {"target": target.removesuffix("_s"), "resource": resource, "limit": sized.bounds.binding.name}
