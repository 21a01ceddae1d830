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

    `abort` takes a request back whose client has given up, from wherever it is; `aborts` are the replicas' own.

    before_ns : int, time from the router to the engine's queue (HTTP, tokenisation); no step is delayed by it.
    """

    def __init__(
        self,
        env: simpy.Environment,
        table: RequestTable,
        policy,
        stops: list[Callable[[int], None]],
        before_ns: int,
        aborts: list[Callable[[int], None]],
    ):
        self._env = env
        self._replica_of = table.data[INDEX["replica"]]
        self._policy = policy
        self._state = policy.start(len(stops))
        self._slots = [Slot(i) for i in range(len(stops))]
        self._stops = stops
        self._before_ns = before_ns
        self._aborts = aborts
        self._on_the_way: dict[int, clock.At] = {}

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
            self._on_the_way[row] = later
            later.callbacks.append(lambda _: self._deliver(row, stop))

    def _deliver(self, row: int, stop: Callable[[int], None]) -> None:
        if self._on_the_way.pop(row, None) is not None:
            stop(row)

    def abort(self, row: int) -> None:
        """The client has given up; this takes no time."""
        if self._on_the_way.pop(row, None) is None:
            self._aborts[self._replica_of[row]](row)
        self.finished(row)

    def finished(self, row: int) -> None:
        """The replica has ended this request."""
        self._slots[self._replica_of[row]].outstanding -= 1
