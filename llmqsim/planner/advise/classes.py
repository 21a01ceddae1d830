"""Levers of traffic in classes: the urgent first, by what the scenario says of urgency, or servers of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from llmqsim.planner.advise.facts import Facts, Place
from llmqsim.planner.advise.fleet import kept, routed
from llmqsim.planner.advise.levers import HEAD_OF_LINE, HEAVY, PRIORITY, Lever, everywhere
from llmqsim.planner.advise.settings import ordering_of

COMPUTING = ("both", "prefill")


def levers(facts: Facts) -> Iterator[Lever]:
    """All of them: priorities that nobody looks at, deadlines that differ, classes that mix."""
    if facts.prioritised:
        for preempt in (False, True):
            sets = everywhere(facts, "engine.ordering", lambda p, how=preempt: _priority(facts, p, how), COMPUTING)
            says = "most urgent class first, by the priorities of the classes"
            yield Lever("priority", f"{says}, even before one that runs" if preempt else says, sets, PRIORITY)
    if facts.classed:
        yield from _deadlines(facts)
        yield from _apart(facts)


def _priority(facts: Facts, place: Place, preempt: bool) -> Any:
    if place.servers.deployment.ordering is None or ordering_of(facts, place) == "priority":
        return None
    return {"policy": "priority", "preempt": True} if preempt else "priority"


def _deadlines(facts: Facts) -> Iterator[Lever]:
    """Earliest deadline first, where classes have targets of their own."""
    waits = {one.limits_s.get("ttft_s", one.limits_s.get("e2e_s")) for one in facts.objectives}
    if len(waits) < 2:
        return

    def order(place: Place) -> str | None:
        plain = place.servers.deployment.ordering is not None and ordering_of(facts, place) == "fcfs"
        return "edf" if plain else None

    sets = everywhere(facts, "engine.ordering", order, COMPUTING)
    yield Lever("order_by_deadline", "earliest deadline first, by the targets of the classes", sets, PRIORITY)


def _apart(facts: Facts) -> Iterator[Lever]:
    """Replicas of its own for each class: by its part of the tokens, and one more or less for the first."""
    tokens = (facts.table.prompt_tokens + facts.table.output_tokens).astype(float)
    work = np.bincount(facts.table.class_id, tokens, minlength=len(facts.table.classes))
    for shift in (0, 1, -1):
        sets = everywhere(facts, "routing", lambda p, s=shift: _groups(facts, p, work, s), COMPUTING)
        says = "replicas of their own for each class"
        if sets:
            sizes = ", ".join(f"{len(its)} {name}" for name, its in sets[0][1]["groups"].items())
            whales = facts.prompt_quantile(0.99) >= HEAVY * max(1, facts.prompt_quantile(0.5))
            yield Lever("class_apart", f"{says}: {sizes}", sets, HEAD_OF_LINE if whales else PRIORITY)


def _groups(facts: Facts, place: Place, work: np.ndarray, shift: int) -> Any:
    names, n = facts.table.classes, place.replicas
    if n < len(names) or not work.all() or routed(facts, place).policy == "by_class":
        return None
    counts = divided(n, work)
    counts[0], counts[1] = counts[0] + shift, counts[1] - shift
    if min(counts) < 1:
        return None
    ends = np.cumsum(counts)
    groups = {
        name: list(range(end - count, end)) for name, count, end in zip(names, counts, ends.tolist(), strict=True)
    }
    return {"policy": "by_class", "groups": groups, **kept(routed(facts, place))}


def divided(replicas: int, work: np.ndarray) -> list[int]:
    """Replicas for each class in proportion to its work, at least one each; the rest by the largest remainder."""
    wanted = work / work.sum() * replicas
    counts = np.maximum(1, np.floor(wanted)).astype(int)
    while counts.sum() < replicas:
        counts[np.argmax(wanted - counts)] += 1
    while counts.sum() > replicas:
        open_ = np.where(counts > 1, wanted - counts, np.inf)
        counts[np.argmin(open_)] -= 1
    return counts.tolist()
