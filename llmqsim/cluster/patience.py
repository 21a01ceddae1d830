"""Clients' patience: who gives up when, and who sends the same request again after a time-out or a refusal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy

from llmqsim import clock
from llmqsim.clients import Retries
from llmqsim.requests import COLUMNS, INDEX, UNSET, Outcome, RequestTable

_OF_AN_ATTEMPT = [
    (INDEX[c.name], c.start) for c in COLUMNS if c.writer == "engine" or c.name in ("replica", "gave_up_ns")
]
"""columns that start anew when a request is sent again: its waits and marks are those of its last attempt"""


class Watch:
    """Looks at each request when its client's patience ends, in the order of sending, which is that of deadlines.

    give_up(row) is called for one whose answer is not complete then.
    """

    def __init__(self, env: simpy.Environment, table: RequestTable, timeout_ns: int, give_up: Callable[[int], None]):
        self._env = env
        self._table = table
        self._timeout_ns = timeout_ns
        self._give_up = give_up
        self._sent: deque[tuple[int, int, int]] = deque()
        """(row, deadline, attempt)"""
        self._deadline_ns: dict[int, int] = {}
        """of each row's last attempt"""
        self._left: set[int] = set()
        """rows that were refused, so that nobody waits for them until they are sent again"""
        self._wake: clock.Wake | None = None
        env.process(self._run())

    def sent(self, row: int) -> None:
        """A request leaves its client now."""
        self._left.discard(row)
        deadline_ns = self._deadline_ns[row] = self._env.now + self._timeout_ns
        self._sent.append((row, deadline_ns, int(self._table.retries[row])))
        if self._wake is not None:
            self._wake.fire(clock.DELIVER)

    def refused(self, row: int) -> None:
        """It was not let in: there is no answer to wait for."""
        self._left.add(row)

    def in_time(self, row: int, seen_ns: int) -> bool:
        """Is an answer that is complete at `seen_ns` one that its client is still waiting for?"""
        return seen_ns <= self._deadline_ns[row]

    def _run(self):
        while True:
            if not self._sent:
                self._wake = clock.Wake(self._env)
                yield self._wake
                self._wake = None
            row, deadline_ns, attempt = self._sent[0]
            if self._waits(row, deadline_ns, attempt):
                yield clock.At(self._env, deadline_ns, clock.DELIVER)
                if self._waits(row, deadline_ns, attempt):
                    self._sent.popleft()
                    self._give_up(row)
                    continue
            self._sent.popleft()

    def _waits(self, row: int, deadline_ns: int, attempt: int) -> bool:
        table = self._table
        if row in self._left or table.retries[row] != attempt:
            return False
        return not UNSET < table.finish_ns[row] <= deadline_ns


class Again:
    """Sends requests again after their back-off, as often as their client tries. send(row) is called when it is time."""

    def __init__(self, env: simpy.Environment, table: RequestTable, retries: Retries, send: Callable[[int], None]):
        self._env = env
        self._table = table
        self._retries = retries
        self._send = send
        self._due: dict[int, list[int]] = {}

    def after(self, row: int, outcome: Outcome) -> bool:
        """Will its client try again after this outcome? Then it is arranged, and the request is unfinished still."""
        retries, data = self._retries, self._table.data
        wanted = retries.after_refusal if outcome == Outcome.REJECTED else retries.after_timeout
        attempt = int(data[INDEX["retries"], row])
        if not wanted or attempt >= retries.delays_ns.shape[1]:
            return False
        for column, start in _OF_AN_ATTEMPT:
            data[column, row] = start
        data[INDEX["retries"], row] = attempt + 1
        self._at(self._env.now + int(retries.delays_ns[row, attempt]), row)
        return True

    def _at(self, time_ns: int, row: int) -> None:
        if time_ns not in self._due:
            self._due[time_ns] = []
            clock.At(self._env, time_ns, clock.DELIVER).callbacks.append(lambda _: self._go(time_ns))
        self._due[time_ns].append(row)

    def _go(self, time_ns: int) -> None:
        """Requests of one instant go by number, not by who was refused first."""
        for row in sorted(self._due.pop(time_ns)):
            self._send(row)
