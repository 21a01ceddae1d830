"""A lever: keys of the scenario that could be set otherwise, what that would mend, and what it takes.

`levers` lists all that make sense for a scenario, as it is written; whether one helps is measured, not guessed. Several
levers of one name are values of one setting, of which the best is kept. Those of settings are in settings.py, those of
routing and pools in fleet.py, of parallelism in layout.py, of classes of traffic in classes.py; joint.py moves two
settings that bound each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from llmqsim.planner.advise.facts import Facts, Place

SLOTS, KV, HEAD_OF_LINE, RATIO, ROUTING = "slot_limit", "kv_starvation", "head_of_line", "pd_ratio", "routing"
BATCHING, STEP_TIME, WORK, SATURATION = "batching", "step_time", "work", "saturation"
BUDGET, PREFIX, PRIORITY, LAYOUT, CLIENT_CAP = "token_budget", "prefix_cache", "priority", "layout", "client_cap"
CAUSES: dict[str, str] = {
    SLOTS: "slot limit: requests wait for one of max_num_seqs places while the GPU has room",
    KV: "KV starvation: requests wait for KV blocks, or lose them and compute again",
    HEAD_OF_LINE: "head-of-line blocking: long requests hold up those behind and beside them",
    RATIO: "wrong ratio of prefill to decode: one pool is short while the other has room",
    ROUTING: "routing: requests pile up at some replicas while others have room",
    BATCHING: "batching: requests can't join and leave between steps",
    BUDGET: "token budget: a step holds too few tokens to keep up, or so many that all in it are late",
    PREFIX: "prefix cache: beginnings that prompts share are computed again and again",
    PRIORITY: "priority: urgent requests wait behind those that can wait",
    LAYOUT: "layout: the GPUs are cut into replicas that are too wide, or too narrow",
    CLIENT_CAP: "the clients' own cap: requests wait where they are sent, not at the servers",
    STEP_TIME: "step time: steps take longer than the TPOT target allows",
    WORK: "work: each request asks for more computing than it needs",
    SATURATION: "saturation: more is asked for than these GPUs can do",
}
"""what can be wrong, in words"""
HEAVY = 6.0
"""times the median prompt from which the longest hundredth are whales"""


@dataclass(frozen=True)
class Lever:
    """One change. sets : (dotted key, plain value), in order; None resets a key. cures : what it would mend (CAUSES).

    changes_answers : fewer bits, so that the model may answer otherwise. buys : the pool that gets one more replica.
    parts : names of levers that it pulls together; it has to be shown to gain more than each of them.
    """

    name: str
    says: str
    sets: tuple[tuple[str, Any], ...]
    cures: str
    changes_answers: bool = False
    buys: str | None = None
    parts: tuple[str, ...] = ()

    @property
    def overrides(self) -> list[tuple]:
        """The same as scenario/load.py takes them; faults name the lever."""
        return [(key, value, f"lever {self.name}") for key, value in self.sets]


def everywhere(
    facts: Facts, key: str, choose: Callable[[Place], Any], roles: tuple[str, ...] = ("both", "prefill", "decode")
) -> tuple[tuple[str, Any], ...]:
    """An override at each place of these roles; `choose` gives its value, None to leave that place as it is."""
    found = [(place.prefix + key, choose(place)) for place in facts.places if place.role in roles]
    return tuple((key, value) for key, value in found if value is not None)


def all_levers(facts: Facts) -> list[Lever]:
    """Every lever short of hardware that makes sense for this scenario, then one more replica of each kind."""
    from llmqsim.planner.advise import classes, fleet, joint, layout, settings

    def found() -> Iterator[Lever]:
        yield from settings.levers(facts)
        yield from joint.levers(facts)
        yield from classes.levers(facts)
        yield from fleet.levers(facts)
        yield from layout.levers(facts)
        yield from fleet.purchases(facts)

    return [lever for lever in found() if lever.sets]
