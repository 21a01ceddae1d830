"""Routers that look at nothing or at requests in flight, before compiled replicas.

A policy says which replicas a request may go to (a list for each row, or one for all), and whether a session stays where
it began (forms.py). Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.routers import Counting, Kernels, made_of
from llmqsim.engine.compiled.routers.layout import *  # noqa: F403
from llmqsim.jit import inlined, kernel


@kernel
def choose(table, arena, costs, row):
    """The replica that a request goes to; it counts there."""
    index = pick(arena, row)
    arena[arena[G_OUTSTANDING] + index] += 1
    return index


@kernel
def pick(arena, row):
    """By turns; where its session began; or the fewest in flight."""
    if arena[G_IN_TURN] != 0:
        return arena[G_SENT] % arena[G_REPLICAS]
    return fewest(arena, row) if arena[arena[G_ROUTER] + F_SESSION_OF] == 0 else where_it_began(arena, row)


@inlined
def list_of(arena, row):
    """Where the list of the replicas lies that a request may go to: their number, then they."""
    router = arena[G_ROUTER]
    return arena[router + F_ALL] if arena[router + F_LIST_OF] == 0 else arena[arena[router + F_LIST_OF] + row]


@kernel
def fewest(arena, row):
    """The replica with the fewest in flight of those that it may go to; ties go to the first of them."""
    counts, may = arena[G_OUTSTANDING], list_of(arena, row)
    best = arena[may + 1]
    for place in range(may + 2, may + 1 + arena[may]):
        if arena[counts + arena[place]] < arena[counts + best]:
            best = arena[place]
    return best


@inlined
def where_it_began(arena, row):
    """The replica of its session; the fewest in flight for one that begins, or for a request of no session (-1)."""
    router = arena[G_ROUTER]
    session = arena[arena[router + F_SESSION_OF] + row]
    if session < 0:
        return fewest(arena, row)
    place = arena[router + F_PLACES] + session
    if arena[place] < 0:
        arena[place] = fewest(arena, row)
    return arena[place]


@inlined
def nothing_to_see(table, arena, now):
    """The router counts what it sends itself."""


@inlined
def nothing_ends(table, arena, row):
    """The replica has counted it down."""


@inlined
def no_report(arena):
    """Nobody reports."""
    return NEVER


@inlined
def everybody_enters(table, arena, costs, row, now):
    """There is no door."""
    return True


@inlined
def asks_nobody(arena):
    """All is known."""
    return False


made_of(
    Counting, Kernels(choose, nothing_to_see, everybody_enters, asks_nobody, nothing_ends, no_report, nothing_to_see)
)
