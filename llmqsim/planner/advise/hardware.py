"""What is left to buy once every lever is pulled: how many GPUs, for which phase; how many the levers have spared."""

from __future__ import annotations

from typing import Any

from llmqsim.errors import UserError
from llmqsim.metrics import stats
from llmqsim.planner.advise.facts import Place
from llmqsim.planner.advise.stack import Stack, judged
from llmqsim.planner.advise.trial import Trial
from llmqsim.planner.attain import KEPT, Attained
from llmqsim.planner.bracket import smallest
from llmqsim.planner.size import Effort, Search, share_text
from llmqsim.planner.split import with_pools
from llmqsim.planner.vary import with_replicas

MOST_REPLICAS, MOST_TIMES = 256, 8
"""replicas that are tried, and how many times as many as the load asks for"""
MOST_STEPS = 32
"""single replicas that are added to pools, one after the other, before the search gives up"""
EFFORT = Effort(search=3, judge=10, most_replicas=MOST_REPLICAS, headroom=False)


def needed(stack: Stack) -> dict[str, Any]:
    """GPUs that the stack still wants: phase, add_replicas, add_gpus, attainment; the reason where no number helps."""
    if stack.trial.facts.split:
        return _pools(stack.trial)
    if stack.trial.facts.pooled:
        return _nothing(
            "not_searched", "the number is searched for replicas of one kind, or one prefill and one decode pool"
        )
    return _replicas(stack.trial)


def _replicas(trial: Trial) -> dict[str, Any]:
    (place,) = trial.facts.places
    found = Search(trial.prepared, EFFORT).answer()
    if found.replicas is None:
        return _nothing(found.reason, found.sentence)
    if found.replicas <= place.replicas:
        told = f"runs do not agree on whether {place.replicas} replicas are enough: {share_text(found.attained)}"
        return _nothing("not_decided", told)
    return _told({place.name: found.replicas - place.replicas}, (place,), found.attained)


def _pools(trial: Trial) -> dict[str, Any]:
    """One replica more, again and again, for the pool where it gains most."""
    places = {place.name: place for place in trial.facts.places}
    counts = {name: place.replicas for name, place in places.items()}
    for _ in range(MOST_STEPS):
        if (now := Trial(with_pools(trial.prepared, counts))).keeps:
            break
        counts = max((counts | {name: counts[name] + 1} for name in counts), key=lambda more: _first_run(trial, more))
    else:
        told = " and ".join(f"{number} {name}" for name, number in counts.items())
        return _nothing("not_decided", f"{told} replicas do not keep the SLO; the search ends there")
    fresh, added = judged(now), {name: counts[name] - places[name].replicas for name in counts}
    if fresh.judged != KEPT or not any(added.values()):
        return _nothing("not_decided", f"fresh runs do not show what the search has found: {share_text(fresh)}")
    return _told(added, tuple(places.values()), fresh)


def _first_run(trial: Trial, counts: dict[str, int]) -> tuple[float, float]:
    """Margin of one run and, where nobody is in time with either pool, tokens a second."""
    more = Trial(with_pools(trial.prepared, counts))
    return more.first_margin(1.0), more.facts.summary["throughput"]["total_tokens_per_s"] or 0.0


def _told(added: dict[str, int], places: tuple[Place, ...], attained: Attained) -> dict[str, Any]:
    """The phase is the one that gets most."""
    gpus = {place.name: added[place.name] * place.gpus_each for place in places}
    told = attained.told()
    return {
        "phase": max(gpus, key=lambda name: gpus[name]),
        "add_replicas": added,
        "add_gpus": sum(gpus.values()),
        "attainment": {key: told[key] for key in ("mean", "low", "high")},
        "reason": None,
        "explanation": "",
    }


def _nothing(reason: str | None, sentence: str) -> dict[str, Any]:
    return {
        "phase": None, "add_replicas": None, "add_gpus": None, "attainment": None,
        "reason": reason, "explanation": sentence,
    }  # fmt: skip


def spared(base: Trial, stack: Stack) -> dict[str, Any] | None:
    """GPUs that the traffic takes without the levers and with them, and the difference, paired over replications.

    Each replication has its own smallest number of replicas that keeps the SLO; None where levers are not replicas of
    one kind, or one kind of run can't be made larger.
    """
    if not stack.levers or base.facts.pooled or stack.trial.facts.pooled or base.alike:
        return None
    try:
        without, with_them = _gpus(base), _gpus(stack.trial)
    except UserError:  # such as a router with groups of replicas by number
        return None
    if without is None or with_them is None:
        return None
    runs = min(len(without), len(with_them))
    return {
        "without_levers": stats.t_interval(without[:runs]).to_dict(),
        "with_levers": stats.t_interval(with_them[:runs]).to_dict(),
        "spared": stats.paired(with_them[:runs], without[:runs]).to_dict(),
    }


def _gpus(trial: Trial) -> list[float] | None:
    """The fewest GPUs with which each replication keeps the SLO; None where MOST_TIMES as many as expected are not enough.

    Some things no GPU mends, such as a cap of the clients.
    """
    (place,) = trial.facts.places
    runs = trial.replications
    seen: dict[int, list[float]] = {}

    def margins(replicas: int) -> list[float]:
        if replicas not in seen:
            seen[replicas] = Trial(with_replicas(trial.prepared, replicas), runs).margins()
        return seen[replicas]

    guess = trial.crossings
    start = place.replicas / max(sum(guess) / len(guess), place.replicas / MOST_REPLICAS)
    expected = max(1, round(start))
    most = min(MOST_REPLICAS, MOST_TIMES * expected)
    fewest = [smallest(lambda n, r=r: margins(n)[r] >= 0, expected, 1, most) for r in range(runs)]
    return None if None in fewest else [float(n * place.gpus_each) for n in fewest]
