"""Clients: what will happen, and closed loops (compiled/loop.py, compiled/clients)."""

# Part of machine code: kernels read and write these fields.
from __future__ import annotations

from llmqsim.engine.compiled.world.record import Record, listed


class Turn(Record):
    """A client of the only loop that wants its next request."""

    __slots__ = ()
    time_ns: int
    client: int


class Event(Record):
    """Something that clients will do."""

    __slots__ = ()
    time_ns: int
    number: int  # when it was thought of
    client: int
    kind: int  # IS_DUE, ...


class Loop(Record):
    """A closed loop among others."""

    __slots__ = ()
    rows: int  # where those lie that it has not sent yet
    left: int  # how many
    clients: int
    stop_ns: int  # nothing is sent from then on
    hold: int  # `left` at which clients wait for each other, NO_HOLD
    held: int  # clients that do
    held_clients: int  # where they lie


IS_DUE, IS_FREE, IS_WATCHED, IS_TURN = range(4)
"""Event.kind; IS_TURN + i: clients of loop i"""
IDLE, WOKEN, WATCHING = range(3)
"""Run.watch"""
NO_HOLD = -1

turn_at = listed(Turn)
event_at = listed(Event)
loop_at = listed(Loop)
