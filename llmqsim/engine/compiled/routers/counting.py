"""Routers that look at nothing or at requests in flight, before compiled replicas.

A policy says which replicas a request may go to (a list for each row, or one for all), and whether a session stays where
it began (forms.py). Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.routers import Counting, Kernels, made_of
from llmqsim.engine.compiled.world.limits import NEVER
from llmqsim.engine.compiled.world.router import router_at
from llmqsim.jit import inlined, kernel


@kernel
def choose(table, run, arena, costs, row):
    """The replica that a request goes to; it counts there."""
    index = pick(run, arena, row)
    arena[run.outstanding + index] += 1
    return index


@kernel
def pick(run, arena, row):
    """By turns; where its session began; or the fewest in flight."""
    if run.in_turn != 0:
        return run.sent % run.replicas
    return fewest(run, arena, row) if router_at(arena, run.router).session_of == 0 else where_it_began(run, arena, row)


@inlined
def list_of(run, arena, row):
    """Where the list of the replicas lies that a request may go to: their number, then they."""
    router = router_at(arena, run.router)
    return router.all if router.list_of == 0 else arena[router.list_of + row]


@kernel
def fewest(run, arena, row):
    """The replica with the fewest in flight of those that it may go to; ties go to the first of them."""
    counts, may = run.outstanding, list_of(run, arena, row)
    best = arena[may + 1]
    for place in range(may + 2, may + 1 + arena[may]):
        if arena[counts + arena[place]] < arena[counts + best]:
            best = arena[place]
    return best


@inlined
def where_it_began(run, arena, row):
    """The replica of its session; the fewest in flight for one that begins, or for a request of no session (-1)."""
    router = router_at(arena, run.router)
    session = arena[router.session_of + row]
    if session < 0:
        return fewest(run, arena, row)
    place = router.places + session
    if arena[place] < 0:
        arena[place] = fewest(run, arena, row)
    return arena[place]


@inlined
def nothing_to_see(table, run, arena, now):
    """The router counts what it sends itself."""


@inlined
def nothing_ends(table, run, arena, row):
    """The replica has counted it down."""


@inlined
def no_report(run, arena):
    """Nobody reports."""
    return NEVER


@inlined
def everybody_enters(table, run, arena, costs, row, now):
    """There is no door."""
    return True


@inlined
def asks_nobody(run, arena):
    """All is known."""
    return False


made_of(
    Counting, Kernels(choose, nothing_to_see, everybody_enters, asks_nobody, nothing_ends, no_report, nothing_to_see)
)
