"""Router: gives each request its replica and knows what it has sent where."""

from __future__ import annotations

from collections.abc import Callable

import simpy

from llmqsim import clock
from llmqsim.requests import INDEX, RequestTable


class Slot:
    """One replica as the router counts it: policies.protocol.RouterView."""

    __slots__ = ("index", "outstanding")

    def __init__(self, index: int):
        self.index = index
        self.outstanding = 0


class Router:
    """`submit` sends a request on, `finished` is told when it is done; between the two it counts as outstanding.

    before_ns : int, time from the router to the engine's queue (HTTP, tokenisation); no step is delayed by it.
    """

    def __init__(
        self,
        env: simpy.Environment,
        table: RequestTable,
        policy,
        stops: list[Callable[[int], None]],
        before_ns: int,
    ):
        self._env = env
        self._replica_of = table.data[INDEX["replica"]]
        self._policy = policy
        self._state = policy.start(len(stops))
        self._slots = [Slot(i) for i in range(len(stops))]
        self._stops = stops
        self._before_ns = before_ns

    def submit(self, row: int) -> None:
        """Choose a replica at this instant; the request reaches its queue `before_ns` later."""
        index = self._policy.choose(self._state, row, self._slots)
        self._slots[index].outstanding += 1
        self._replica_of[row] = index
        stop = self._stops[index]
        if self._before_ns == 0:
            stop(row)
        else:
            later = clock.At(self._env, self._env.now + self._before_ns, clock.DELIVER)
            later.callbacks.append(lambda _: stop(row))

    def finished(self, row: int) -> None:
        """The replica has ended this request."""
        self._slots[self._replica_of[row]].outstanding -= 1
