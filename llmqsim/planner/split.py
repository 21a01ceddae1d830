"""The smallest fleet of prefill and decode replicas (xPyD) that keeps an SLO.

Each phase is bracketed on its own first, beside more replicas of the other one than it can use: no fleet has fewer of
either. From these two numbers the search walks outwards, the cheapest fleet first and, of equals, the one nearest to their
ratio, so that the first one that keeps the SLO is the cheapest; this takes for granted that one more replica never hurts.
Steps are decided and the answer is judged as planner/size.py does it for replicas of one kind.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from llmqsim.metrics.slo import objectives
from llmqsim.planner.attain import BROKEN, KEPT, Attained, Fresh, Probe
from llmqsim.planner.bounds import DecodeBounds, prefill_bounds
from llmqsim.planner.bracket import headroom_factor
from llmqsim.planner.demand import arrival_rate
from llmqsim.planner.limits import REASONS, ceiling
from llmqsim.planner.replicate import alike
from llmqsim.planner.settle import Length, Tell, quiet
from llmqsim.planner.size import JUDGED_RUN, Effort, judge_runs, share_text
from llmqsim.planner.vary import at_load, changed, pool_names
from llmqsim.scenario.build import build_workload
from llmqsim.scenario.build_fleet import Plant
from llmqsim.simulation import Prepared, promise

ENOUGH = 4
"""times what arithmetic asks for: so many of one phase, and it is not what the other one waits for"""
DOUBLINGS, MOST_STEPS = 5, 60
NO_GAIN = 0.002
"""attainment that a doubled fleet must gain to be doubled once more"""

Pair = tuple[int, int]
"""prefill and decode replicas"""


@dataclass(frozen=True)
class SizedSplit:
    """The answer. pair : None where none was found. less : one prefill, or one decode replica less, where there is one."""

    pair: Pair | None
    attained: Attained | None
    less: dict[str, Attained | None] = field(default_factory=dict)
    reason: str | None = None
    sentence: str = ""


class SplitSearch:
    """Fleets of one combination. weights : what a prefill and a decode replica cost, in GPUs or dollars."""

    def __init__(self, prepared: Prepared, effort: Effort, weights: tuple[float, float], tell: Tell = quiet):
        self.prepared, self.effort, self.weights = prepared, effort, weights
        spec, servers = prepared.scenario.spec, prepared.servers
        assert isinstance(servers, Plant)
        self.names = pool_names(prepared, "size")
        self.table = build_workload(prepared.scenario, servers, spec.run.seed, 0).table
        self.length = Length(prepared.scenario, len(self.table), tell)
        self.probe = Probe(spec.run.seed, alike(prepared), self.length)
        deployments = [servers.pools[name].deployment for name in self.names]
        self.bounds = (prefill_bounds(deployments[0], self.table), DecodeBounds(deployments[1], self.table))
        self.rate_per_s = arrival_rate(prepared.scenario, self.bounds[1].mix)
        self.fewest = self._fewest()
        self.seen: dict[Pair, Attained] = {}
        self._fresh = Fresh(self.probe, self.servers, lambda: judge_runs(self.effort, self.length.told().run))

    def _fewest(self) -> Pair:
        """Replicas of each phase below which arithmetic says overload; 1 where requests may skip the prefill pool."""
        if self.rate_per_s is None or self.prepared.scenario.spec.placement is not None:
            return 1, 1
        asked = objectives(promise(self.prepared.scenario), self.table.classes)
        return self.bounds[0].fewest(self.rate_per_s), self.bounds[1].fewest(self.rate_per_s, asked)

    def measure(self, pair: Pair) -> float:
        """GPUs, or dollars an hour."""
        return pair[0] * self.weights[0] + pair[1] * self.weights[1]

    def servers(self, pair: Pair) -> Prepared:
        """The same servers, so many of each; nothing is built again."""
        return with_pools(self.prepared, dict(zip(self.names, pair, strict=True)))

    def at(self, pair: Pair) -> Attained:
        """What a fleet attains in the search, decided once."""
        if pair not in self.seen:
            self.seen[pair] = self.probe.decide(self.servers(pair), most=self.effort.search)
        return self.seen[pair]

    def bracket(self, most: float = math.inf) -> SizedSplit:
        """The cheapest fleet of a measure up to `most` that the search finds kept, not judged yet."""
        if (hopeless := self._hopeless()) is not None:
            return hopeless
        plenty = self._plenty()
        if self.at(plenty).judged != KEPT:
            return self._nothing(plenty, self.at(plenty))
        least = (
            _smallest(lambda x: self._kept((x, plenty[1])), self.fewest[0], plenty[0]),
            _smallest(lambda y: self._kept((plenty[0], y)), self.fewest[1], plenty[1]),
        )
        self._open(least)
        found = self._walk(self.at, most)
        if found is None:
            told = f"each phase on its own asks for {least[0]}P{least[1]}D, and no fleet that is cheaper than the best keeps the SLO"
            return SizedSplit(None, None, {}, "dearer", told)
        return SizedSplit(found, self.at(found))

    def judge(self, pair: Pair) -> SizedSplit:
        """The answer next to `pair` that fresh, longer runs confirm, with one less of each phase, which they do not."""
        self.length.at_least(JUDGED_RUN, "to judge the answer by")
        while True:
            times, found = self.length.times, self._judge(pair)
            if found is None:
                return self._nothing(pair, self._fresh.at(pair))
            less = {phase: None if one is None else self._one_less(one) for phase, one in _less(found).items()}
            attained, pair = self._fresh.at(found), found
            if times == self.length.times and self._fresh.confirmed(found):
                return SizedSplit(found, attained, less)

    def _judge(self, pair: Pair) -> Pair | None:
        """The fleet from `pair` on that is kept, and none of whose phases can lose one."""
        found: Pair | None = pair
        if self._fresh.at(pair).judged != KEPT:
            self._open(pair)
            found = self._walk(self._fresh.at, math.inf)
        while found and (smaller := [one for one in _less(found).values() if one and self._can(one)]):
            found = min(smaller, key=self.measure)
        return found

    def _can(self, pair: Pair) -> bool:
        """Is a fleet kept that arithmetic allows?"""
        allowed = all(count >= least for count, least in zip(pair, self.fewest, strict=True))
        return allowed and self._one_less(pair).judged == KEPT

    def headroom(self, pair: Pair) -> float | None:
        """How many more requests per second the fleet carries within the SLO; None where there is no rate."""
        if self.rate_per_s is None:
            return None
        servers = self.servers(pair)

        def kept_at(factor: float) -> bool:
            faster = Prepared(at_load(servers.scenario, factor), servers.servers)
            return self.probe.decide(faster, most=self.effort.search).judged == KEPT

        return (headroom_factor(kept_at) - 1) * self.rate_per_s

    def _kept(self, pair: Pair) -> bool:
        return self.at(pair).judged == KEPT

    def _one_less(self, pair: Pair) -> Attained:
        """As the search decided it where that is broken: a starved pool is slow to simulate; else on fresh replications."""
        return self.at(pair) if self.at(pair).judged == BROKEN else self._fresh.at(pair)

    def _hopeless(self) -> SizedSplit | None:
        """The reason why no number helps, where both pools are alike: each phase alone is no faster than in a split."""
        one, other = (self.prepared.scenario.spec.pools[name] for name in self.names)
        if one.model_copy(update={"role": None, "replicas": 1}) != other.model_copy(update={"role": None, "replicas": 1}):
            return None
        deployment = self.prepared.servers.pools[self.names[1]].deployment
        asked = objectives(promise(self.prepared.scenario), self.table.classes)
        best = ceiling(self.bounds[1], deployment, self.table, asked)
        return None if best.reason is None else SizedSplit(None, None, {}, best.reason, best.sentence)

    def _plenty(self) -> Pair:
        """More of each than the phase needs: doubled until the SLO is kept, or no longer nearer."""
        most = max(2, self.effort.most_replicas)
        pair = tuple(min(ENOUGH * count + ENOUGH, most // 2) for count in self.fewest)
        for _ in range(DOUBLINGS):
            more = tuple(min(2 * count, most // 2) for count in pair)
            if self._kept(pair) or more == pair:
                break
            gained = (self.at(more).told()["mean"] or 0) - (self.at(pair).told()["mean"] or 0)
            pair = more
            if gained < NO_GAIN:
                break
        return pair

    def _open(self, least: Pair) -> None:
        self._ratio, self._queued = math.log(least[0] / least[1]), set()
        self._heap: list[tuple[float, float, Pair]] = []
        self._push(least)

    def _push(self, pair: Pair) -> None:
        if pair not in self._queued and sum(pair) <= max(2, self.effort.most_replicas):
            self._queued.add(pair)
            off = abs(math.log(pair[0] / pair[1]) - self._ratio)
            heapq.heappush(self._heap, (self.measure(pair), off, pair))

    def _walk(self, decide: Callable[[Pair], Attained], most: float) -> Pair | None:
        """The next fleet that is kept, from the cheapest on; None: none up to `most`, or within MOST_STEPS."""
        for _ in range(MOST_STEPS):
            if not self._heap or self._heap[0][0] > most + 1e-9:
                return None
            pair = heapq.heappop(self._heap)[2]
            self._push((pair[0] + 1, pair[1]))
            self._push((pair[0], pair[1] + 1))
            if decide(pair).judged == KEPT:
                return pair
        return None

    def _nothing(self, pair: Pair, seen: Attained) -> SizedSplit:
        reason = "most_replicas_reached" if seen.judged == BROKEN else "not_decided"
        asked = seen.objectives[seen.worst].share
        why = f": {seen.why_open}" if reason == "not_decided" else ""
        told = f"{REASONS[reason]}: {pair[0]}P{pair[1]}D gives {share_text(seen)}, {100 * asked:g} % are asked for{why}"
        return SizedSplit(None, seen, {}, reason, told)


def _less(pair: Pair) -> dict[str, Pair | None]:
    prefill, decode = pair
    return {
        "prefill": (prefill - 1, decode) if prefill > 1 else None,
        "decode": (prefill, decode - 1) if decode > 1 else None,
    }


def _smallest(kept: Callable[[int], bool], fewest: int, known: int) -> int:
    """The smallest number that is kept, between `fewest` and `known`, which is: steps that double, then bisection."""
    low, high, step = fewest - 1, fewest, 1
    while high < known and not kept(high):
        low, high, step = high, min(high + step, known), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def with_pools(prepared: Prepared, counts: dict[str, int]) -> Prepared:
    """The same servers, other numbers of them in each pool; nothing is built again."""
    plant = prepared.servers
    assert isinstance(plant, Plant)
    pools = {name: one.model_copy(update={"replicas": counts[name]}) for name, one in prepared.scenario.spec.pools.items()}
    servers = {
        name: replace(one, deployment=replace(one.deployment, replicas=counts[name])) for name, one in plant.pools.items()
    }
    made = tuple(replace(one, deployment=servers[one.name].deployment) for one in plant.fleet.pools)
    fleet = replace(plant.fleet, pools=made)
    return Prepared(changed(prepared.scenario, {"pools": pools}), replace(plant, pools=servers, fleet=fleet))
