"""What the clients of a run do, as words of the arena (clients/kernels.py)."""

from __future__ import annotations

import numpy as np

from llmqsim.clients import Clients
from llmqsim.engine.compiled import layout as at
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
            "events": (clients + min(self._clients.max_in_flight or 0, rows) + 4) * at.EVENT,
            "ready": max((loop.clients for loop in loops), default=0),
            "sent_rows": rows,
            "sent_order": rows,
            "open": len(self._open),
            "loop_of": rows,
            "loops": len(loops) * at.LOOP,
            "loop_rows": sum(len(loop.rows) for loop in loops),
            "held": clients,
        }

    def fill(self, arena: np.ndarray, place: dict[str, int]) -> None:
        """Write them into the arena. Rows under a cap lose the arrival that they don't know yet."""
        from llmqsim.engine.compiled.clients import kernels

        clients = self._clients
        words = {
            at.G_EVENTS: place["events"],
            at.G_DUE: place["ready"],
            at.G_SENT_ROWS: place["sent_rows"],
            at.G_SENT_ORDER: place["sent_order"],
            at.G_OPEN: place["open"],
            at.G_OPEN_SIZE: len(self._open),
            at.G_LOOPS: place["loops"],
            at.G_LOOP_OF: place["loop_of"],
            at.G_TIMEOUT_NS: at.NEVER if clients.timeout_ns is None else clients.timeout_ns,
            at.G_CAP: clients.max_in_flight or 0,
            at.G_TURNAROUND_NS: clients.turnaround_ns,
        }
        for word, value in words.items():
            arena[word] = value
        if clients.max_in_flight is not None:
            self._table.data[INDEX["arrival_ns"], self._open] = UNSET
        arena[place["open"] :][: len(self._open)] = self._open
        arena[place["loop_of"] :][: len(self._loop_of)] = self._loop_of
        self._fill_loops(arena, place, kernels)
        kernels.begin(self._table.data, arena)

    def _fill_loops(self, arena: np.ndarray, place: dict[str, int], kernels) -> None:
        rows_at, held_at = place["loop_rows"], place["held"]
        for index, loop in enumerate(self._clients.loops):
            words = {
                at.L_ROWS: rows_at,
                at.L_LEFT: len(loop.rows),
                at.L_CLIENTS: loop.clients,
                at.L_STOP_NS: at.NEVER if loop.stop_ns is None else loop.stop_ns,
                at.L_HOLD: at.NO_HOLD if loop.drain_after is None else len(loop.rows) - loop.drain_after,
                at.L_HELD_CLIENTS: held_at,
            }
            for word, value in words.items():
                arena[place["loops"] + index * at.LOOP + word] = value
            arena[rows_at:][: len(loop.rows)] = loop.rows
            rows_at, held_at = rows_at + len(loop.rows), held_at + loop.clients
            for client in range(loop.clients):
                kernels.ready_at(arena, index, client * loop.ramp_up_ns // loop.clients, client)
