"""The client side: when requests are sent, which answers let the next one go, and who gives up.

A client sees a token when it arrives (`finish_ns`, the engine's time plus the way back), and everything that it does
next counts from there. Two senders: `OpenLoop` sends what is due, unless its cap on requests in flight holds it back;
`ClosedLoop` is a number of clients, each with one request in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import simpy

from llmqsim import clock
from llmqsim.clients import Clients, Loop
from llmqsim.cluster import source
from llmqsim.cluster.patience import Again, Watch
from llmqsim.requests import INDEX, UNSET, Outcome, Reason, RequestTable


class ClientSide:
    """All clients of a run. `submit` (False: refused) and `abort` lead to the servers; `finished` hears of last tokens."""

    def __init__(
        self,
        env: simpy.Environment,
        table: RequestTable,
        clients: Clients,
        submit: Callable[[int], Reason],
        abort: Callable[[int], None],
    ):
        self.env = env
        self.table = table
        self.turnaround_ns = clients.turnaround_ns
        self.last_ns = 0
        """when a client last saw or did something"""
        self._submit, self._abort = submit, abort
        self._loop_of: dict[int, ClosedLoop] = {}
        for loop in clients.loops:
            sender = ClosedLoop(self, loop)
            self._loop_of.update(dict.fromkeys(loop.rows.tolist(), sender))
        self._open = OpenLoop(self, self._open_rows(clients), clients.max_in_flight)
        timeout_ns, retries = clients.timeout_ns, clients.retries
        self._watch = None if timeout_ns is None else Watch(env, table, timeout_ns, self._give_up)
        self._again = None if retries is None else Again(env, table, retries, self._leave)

    def _open_rows(self, clients: Clients) -> np.ndarray:
        """Rows in no loop; what the servers could never serve never leaves."""
        leaves = self.table.outcome != Outcome.REJECTED
        for loop in clients.loops:
            leaves[loop.rows] = False
        return np.flatnonzero(leaves)

    def send(self, row: int) -> None:
        """A request leaves its client now, for the first time."""
        self.table.arrival_ns[row] = self.env.now
        self._leave(row)

    def _leave(self, row: int) -> None:
        self.last_ns = max(self.last_ns, self.env.now)
        if self._watch is not None:
            self._watch.sent(row)
        reason = self._submit(row)
        if reason != Reason.NONE:
            self._refused(row, reason)

    def _refused(self, row: int, reason: Reason) -> None:
        """The servers did not let it in; that takes no time."""
        if self._watch is not None:
            self._watch.refused(row)
        if self._again is not None and self._again.after(row, Outcome.REJECTED):
            return
        self.table.data[INDEX["outcome"], row] = Outcome.REJECTED
        self.table.data[INDEX["reason"], row] = reason
        self._sender(row).answered(row, self.env.now)

    def finished(self, row: int) -> None:
        """The engine has ended this request; its client sees that at finish_ns, unless it gives up before."""
        seen_ns = int(self.table.finish_ns[row])
        if self._watch is None or self._watch.in_time(row, seen_ns):
            self.last_ns = max(self.last_ns, seen_ns)
            self._sender(row).answered(row, seen_ns)

    def _sender(self, row: int) -> ClosedLoop | OpenLoop:
        return self._loop_of.get(row, self._open)

    def _give_up(self, row: int) -> None:
        """The client hangs up. The last token may be on its way to it; if not, the servers are told to stop."""
        data, now = self.table.data, self.env.now
        if data[INDEX["finish_ns"], row] == UNSET:
            self._abort(row)
        self.last_ns = max(self.last_ns, now)
        if self._again is not None and self._again.after(row, Outcome.TIMED_OUT):
            data[INDEX["outcome"], row] = Outcome.UNFINISHED
            return
        data[INDEX["outcome"], row] = Outcome.TIMED_OUT
        data[INDEX["finish_ns"], row] = UNSET
        if data[INDEX["first_token_ns"], row] > now:
            data[INDEX["first_token_ns"], row] = UNSET
        data[INDEX["gave_up_ns"], row] = now
        self._sender(row).answered(row, now)


class OpenLoop:
    """Sends each row when it is due; above the cap it waits, in order, until one in flight has been answered."""

    def __init__(self, side: ClientSide, rows: np.ndarray, max_in_flight: int | None):
        self._side = side
        self._cap = max_in_flight
        self._in_flight = 0
        self._waiting: deque[int] = deque()
        if max_in_flight is not None:
            side.table.data[INDEX["arrival_ns"], rows] = UNSET
        due_ns = side.table.intended_ns[rows]
        side.env.process(source.open_loop(side.env, rows, due_ns, self._due))

    def _due(self, row: int) -> None:
        if self._cap is not None and self._in_flight >= self._cap:
            self._waiting.append(row)
        else:
            self._in_flight += 1
            self._side.send(row)

    def answered(self, row: int, seen_ns: int) -> None:
        """Its place is free once the client has turned around."""
        if self._cap is not None:
            free = clock.At(self._side.env, seen_ns + self._side.turnaround_ns, clock.DELIVER)
            free.callbacks.append(lambda _: self._release())

    def _release(self) -> None:
        self._in_flight -= 1
        if self._waiting:
            self._due(self._waiting.popleft())


class ClosedLoop:
    """`clients` that take the next row each, send it, wait for the answer, turn around, think, and take the next."""

    def __init__(self, side: ClientSide, loop: Loop):
        self._side = side
        self._rows = deque(loop.rows.tolist())
        self._clients = loop.clients
        self._stop_ns = loop.stop_ns
        self._hold = None if loop.drain_after is None else len(self._rows) - loop.drain_after
        self._held: list[int] = []
        self._ready: dict[int, list[int]] = {}
        self._client_of = side.table.data[INDEX["client"]]
        for client in range(loop.clients):
            self._ready_at(client * loop.ramp_up_ns // loop.clients, client)

    def _ready_at(self, time_ns: int, client: int) -> None:
        """This client wants its next request then. Clients of one instant go by number, not by who asked first."""
        if time_ns not in self._ready:
            self._ready[time_ns] = []
            clock.At(self._side.env, time_ns, clock.DELIVER).callbacks.append(lambda _: self._take_turns(time_ns))
        self._ready[time_ns].append(client)

    def _take_turns(self, time_ns: int) -> None:
        for client in sorted(self._ready.pop(time_ns)):
            if not self._rows or (self._stop_ns is not None and time_ns >= self._stop_ns):
                return
            if len(self._rows) == self._hold:
                self._hold_back(client)
            else:
                self._take(client, self._rows.popleft())

    def _hold_back(self, client: int) -> None:
        """Warm-up is over for this client; when it is for all of them, all go on."""
        self._held.append(client)
        if len(self._held) == self._clients:
            self._hold = None
            for held in sorted(self._held):
                self._ready_at(self._side.env.now, held)

    def _take(self, client: int, row: int) -> None:
        table, now = self._side.table, self._side.env.now
        self._client_of[row] = client
        table.intended_ns[row] = now
        if table.outcome[row] == Outcome.REJECTED:
            table.arrival_ns[row] = now
            self.answered(row, now)
        else:
            self._side.send(row)

    def answered(self, row: int, seen_ns: int) -> None:
        """The client turns around, thinks and comes back."""
        pause_ns = self._side.turnaround_ns + int(self._side.table.think_ns[row])
        self._ready_at(seen_ns + pause_ns, int(self._client_of[row]))
