"""Router: gives each request its replica and knows what it has sent where."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import simpy

from llmqsim import clock


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
    replica_of : int64[rows], where the number of the chosen replica is written. first : number of the pool's first one.
    """

    def __init__(
        self,
        env: simpy.Environment,
        replica_of: np.ndarray,
        policy,
        stops: list[Callable[[int], None]],
        before_ns: int,
        aborts: list[Callable[[int], None]],
        first: int = 0,
    ):
        self._env = env
        self._replica_of = replica_of
        self._policy = policy
        self._state = policy.start(len(stops))
        self._slots = [Slot(i) for i in range(len(stops))]
        self._stops = stops
        self._before_ns = before_ns
        self._aborts = aborts
        self._first = first
        self._on_the_way: dict[int, clock.At] = {}

    @property
    def outstanding(self) -> int:
        """Requests sent and not yet finished."""
        return sum(slot.outstanding for slot in self._slots)

    def replica_of(self, row: int) -> int:
        """Number of the replica that was chosen for a request."""
        return int(self._replica_of[row])

    def submit(self, row: int) -> None:
        """Choose a replica at this instant; the request reaches its queue `before_ns` later."""
        self.choose(row)
        self.send(row, self._env.now)

    def choose(self, row: int) -> int:
        """Choose a replica at this instant and count the request there; return its place in the pool."""
        index = self._policy.choose(self._state, row, self._slots)
        self._slots[index].outstanding += 1
        self._replica_of[row] = self._first + index
        return index

    def send(self, row: int, since_ns: int) -> None:
        """Send a request on its way, which began at `since_ns`, to the replica that was chosen for it."""
        stop = self._stops[self._replica_of[row] - self._first]
        due_ns = since_ns + self._before_ns
        if due_ns <= self._env.now:
            stop(row)
        else:
            later = clock.At(self._env, due_ns, clock.DELIVER)
            self._on_the_way[row] = later
            later.callbacks.append(lambda _: self._deliver(row, stop))

    def _deliver(self, row: int, stop: Callable[[int], None]) -> None:
        if self._on_the_way.pop(row, None) is not None:
            stop(row)

    def abort(self, row: int) -> None:
        """The client has given up; this takes no time."""
        if self._on_the_way.pop(row, None) is None:
            self._aborts[self._replica_of[row] - self._first](row)
        self.finished(row)

    def finished(self, row: int) -> None:
        """The replica has ended this request."""
        self._slots[self._replica_of[row] - self._first].outstanding -= 1
