"""What the clients of a run do, as records (world/clients.py)."""

from __future__ import annotations

import numpy as np

from llmqsim.clients import Clients
from llmqsim.engine.compiled.world.clients import NO_HOLD, Event, Loop
from llmqsim.engine.compiled.world.limits import NEVER
from llmqsim.engine.compiled.world.run import Run
from llmqsim.requests import INDEX, UNSET, Outcome, RequestTable


def are_plain(table: RequestTable, clients: Clients) -> bool:
    """Is it enough to know one closed loop that sends all rows, or rows that are sent when they are due?"""
    if clients.max_in_flight is not None or clients.timeout_ns is not None or len(clients.loops) > 1:
        return False
    if not clients.loops:
        return not np.any(table.intended_ns[1:] < table.intended_ns[:-1])
    (loop,) = clients.loops
    alone = loop.drain_after is None and np.array_equal(loop.rows, np.arange(len(table)))
    return alone and not (table.data[[INDEX["arrival_ns"], INDEX["intended_ns"]]] != UNSET).any()


class Crowd:
    """All clients of a run that are not plain."""

    def __init__(self, table: RequestTable, clients: Clients):
        self._table, self._clients = table, clients
        leaves = table.outcome != Outcome.REJECTED
        self._loop_of = np.full(len(table), -1)
        for index, loop in enumerate(clients.loops):
            leaves[loop.rows] = False
            self._loop_of[loop.rows] = index
        self._open = np.flatnonzero(leaves)

    def sizes(self) -> dict[str, int]:
        """Words of each region."""
        rows, loops = len(self._table), self._clients.loops
        clients = sum(loop.clients for loop in loops)
        return {
            "events": (clients + min(self._clients.max_in_flight or 0, rows) + 4) * Event.words,
            "ready": max((loop.clients for loop in loops), default=0),
            "sent_rows": rows,
            "sent_order": rows,
            "open": len(self._open),
            "loop_of": rows,
            "loops": len(loops) * Loop.words,
            "loop_rows": sum(len(loop.rows) for loop in loops),
            "held": clients,
        }

    def fill(self, arena: np.ndarray, place: dict[str, int]) -> None:
        """Write them into the arena. Rows under a cap lose the arrival that they don't know yet."""
        from llmqsim.engine.compiled.clients import serving

        clients = self._clients
        Run(arena, 0).set(
            events=place["events"],
            due=place["ready"],
            sent_rows=place["sent_rows"],
            sent_order=place["sent_order"],
            open=place["open"],
            open_size=len(self._open),
            loops=place["loops"],
            loop_of=place["loop_of"],
            timeout_ns=NEVER if clients.timeout_ns is None else clients.timeout_ns,
            cap=clients.max_in_flight or 0,
            turnaround_ns=clients.turnaround_ns,
        )
        if clients.max_in_flight is not None:
            self._table.data[INDEX["arrival_ns"], self._open] = UNSET
        arena[place["open"] :][: len(self._open)] = self._open
        arena[place["loop_of"] :][: len(self._loop_of)] = self._loop_of
        self._fill_loops(arena, place)
        serving.start(self._table.data, arena, self._starts())

    def _fill_loops(self, arena: np.ndarray, place: dict[str, int]) -> None:
        rows_at, held_at = place["loop_rows"], place["held"]
        for index, loop in enumerate(self._clients.loops):
            Loop(arena, place["loops"] + index * Loop.words).set(
                rows=rows_at,
                left=len(loop.rows),
                clients=loop.clients,
                stop_ns=NEVER if loop.stop_ns is None else loop.stop_ns,
                hold=NO_HOLD if loop.drain_after is None else len(loop.rows) - loop.drain_after,
                held_clients=held_at,
            )
            arena[rows_at:][: len(loop.rows)] = loop.rows
            rows_at, held_at = rows_at + len(loop.rows), held_at + loop.clients

    def _starts(self) -> np.ndarray:
        """Clients of loops: (loop, when it wants its first request, number), in turn over the ramp-up. int64[clients, 3]."""
        told = [
            (index, client * loop.ramp_up_ns // loop.clients, client)
            for index, loop in enumerate(self._clients.loops)
            for client in range(loop.clients)
        ]
        return np.array(told, dtype=np.int64).reshape(-1, 3)
