"""Gate: the admission policy at work, in front of the router. Who is refused never reaches a replica."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import simpy

from llmqsim.cluster.routed import Routed
from llmqsim.requests import Reason, RequestTable


class Gate:
    """`submit` lets a request in (Reason.NONE) or says why not. It is policies.protocol.FrontView, too.

    send : where those who enter go. queued() : requests that wait in the replicas' queues or at the router.
    """

    def __init__(
        self,
        env: simpy.Environment,
        table: RequestTable,
        policy,
        send: Callable[[int], None],
        queued: Callable[[], int],
    ):
        self._env = env
        self._table = table
        self._policy = policy
        self._state = policy.start()
        self._reason = Reason[policy.reason.upper()]
        self._send = send
        self._queued = queued
        self._finished_ns: list[int] = []
        self.outstanding = 0

    def submit(self, row: int) -> Reason:
        """A request arrives."""
        if not self._policy.admit(self._state, Routed(self._table, row, None), self):
            return self._reason
        self.outstanding += 1
        self._send(row)
        return Reason.NONE

    def finished(self, row: int) -> None:
        """A replica has ended a request."""
        self.outstanding -= 1
        self._finished_ns.append(self._env.now)

    def taken_back(self, row: int) -> None:
        """A client has given up on one that was let in."""
        self.outstanding -= 1

    # What the policy sees.

    @property
    def now_ns(self) -> int:
        """The time."""
        return self._env.now

    @property
    def waiting(self) -> int:
        """Let in, and not taken up by a replica yet."""
        return self._queued()

    def finished_within(self, window_ns: int) -> int:
        """Requests that finished in the last `window_ns`."""
        return len(self._finished_ns) - bisect_right(self._finished_ns, self._env.now - window_ns)
