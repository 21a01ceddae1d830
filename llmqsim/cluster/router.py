"""Router: gives each request its replica and knows what it has sent where.

With late binding a request waits here, in order of arrival, until a replica has a place for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass

import numpy as np
import simpy

from llmqsim import clock
from llmqsim.cluster.routed import Routed
from llmqsim.cluster.signals import Report, Signals
from llmqsim.engine import rules
from llmqsim.engine.deployment import Deployment
from llmqsim.kv.pool import KvPool
from llmqsim.requests import INDEX, RequestTable
from llmqsim.units import to_ns


@dataclass(frozen=True)
class Stop:
    """A replica as the router reaches it: give it a request, take one back, ask what it holds."""

    submit: Callable[[int], None]
    abort: Callable[[int], None]
    report: Callable[[], tuple[int, int, int]]


class Slot:
    """One replica as the router counts it: policies.protocol.RouterView."""

    def __init__(self, index: int, signals: Signals, block_size: int, usable_blocks: int):
        self.index = index
        self.block_size = block_size
        self.usable_blocks = usable_blocks
        self.outstanding = 0
        self._signals = signals
        self._since: dict[int, int] = {}
        """row -> blocks of its prompt, for those sent since the last report"""

    @property
    def signal(self) -> Report:
        """What it reported."""
        return self._signals.of(self.index)

    @property
    def sent_since(self) -> int:
        """Requests sent since the report; none where the router sees what the replica holds."""
        return len(self._since)

    @property
    def blocks_since(self) -> int:
        """KV blocks of their prompts."""
        return sum(self._since.values())

    def sent(self, row: int, blocks: int) -> None:
        """A request goes there."""
        self.outstanding += 1
        if not self._signals.live:
            self._since[row] = blocks

    def ended(self, row: int) -> None:
        """It is not there any more."""
        self.outstanding -= 1
        self._since.pop(row, None)

    def reported(self, on_the_way: Container[int]) -> None:
        """The replica knows of all that has reached it."""
        self._since = {row: blocks for row, blocks in self._since.items() if row in on_the_way}


class Router:
    """`submit` sends a request on, `finished` is told when it is done; between the two it counts as outstanding.

    `abort` takes a request back whose client has given up, from wherever it is.

    replica_of : int64[rows], where the number of the chosen replica is written. first : number of the pool's first one.
    draws : float64[rows, n], the policy's random numbers, if it needs any.
    """

    def __init__(
        self,
        env: simpy.Environment,
        table: RequestTable,
        servers: Deployment,
        stops: list[Stop],
        replica_of: np.ndarray,
        first: int = 0,
        draws: np.ndarray | None = None,
    ):
        self._env = env
        self._table = table
        self._policy = servers.routing
        self._state = self._policy.start(len(stops))
        self._draws = draws
        self._stops = stops
        self._before_ns = to_ns(servers.host.request_before_s)
        """time from the router to the engine's queue (HTTP, tokenisation); no step is delayed by it"""
        self._replica_of = replica_of
        self._first = first
        self._cap = servers.late_binding
        self._block_size = servers.options.block_size
        self._signals = Signals(env, [stop.report for stop in stops], servers.signal_age_ns)
        self._signals.on_report = self._reported
        self._signals.busy = lambda: self.outstanding > 0
        usable = KvPool(servers.kv_blocks, self._block_size).usable_blocks
        self._slots = [Slot(i, self._signals, self._block_size, usable) for i in range(len(stops))]
        self._held: deque[tuple[int, int]] = deque()
        """(row, since when)"""
        self._binding = False
        self._on_the_way: dict[int, clock.At] = {}

    @property
    def outstanding(self) -> int:
        """Requests sent and not yet finished."""
        return sum(slot.outstanding for slot in self._slots)

    @property
    def waiting(self) -> int:
        """Requests held here, and those in the replicas' queues as they last reported."""
        return len(self._held) + sum(slot.signal.waiting for slot in self._slots)

    def replica_of(self, row: int) -> int:
        """Number of the replica that was chosen for a request."""
        return int(self._replica_of[row])

    def submit(self, row: int) -> None:
        """Choose a replica at this instant; the request reaches its queue `before_ns` later."""
        if self._cap is None:
            self.choose(row)
            self.send(row, self._env.now)
        else:
            self._held.append((row, self._env.now))
            self._bind()

    def _bind(self) -> None:
        """Give a replica to those who wait, as long as one has a place."""
        self._binding = False
        while self._held and (free := [slot for slot in self._slots if slot.outstanding < self._cap]):
            row, since_ns = self._held.popleft()
            self._waited(row, since_ns)
            self._choose(row, free)
            self.send(row, self._env.now)

    def _bind_soon(self) -> None:
        """Once all steps that end at this instant have: which of them ended first must not matter."""
        if self._held and not self._binding:
            self._binding = True
            clock.At(self._env, self._env.now, clock.DELIVER).callbacks.append(lambda _: self._bind())

    def _waited(self, row: int, since_ns: int) -> None:
        self._table.data[INDEX["wait_router_ns"], row] = self._env.now - since_ns

    def choose(self, row: int) -> int:
        """Choose a replica at this instant and count the request there; return its place in the pool."""
        return self._choose(row, self._slots)

    def _choose(self, row: int, slots: list[Slot]) -> int:
        self._signals.sending()
        index = self._policy.choose(self._state, self._request(row), slots)
        self._slots[index].sent(row, rules.blocks_for(int(self._table.prompt_tokens[row]), self._block_size))
        self._replica_of[row] = self._first + index
        return index

    def _request(self, row: int) -> Routed:
        return Routed(self._table, row, self._draws)

    def send(self, row: int, since_ns: int) -> None:
        """Send a request on its way, which began at `since_ns`, to the replica that was chosen for it."""
        stop = self._stops[self._replica_of[row] - self._first].submit
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
        if held := next((entry for entry in self._held if entry[0] == row), None):
            self._held.remove(held)
            self._waited(*held)
            return
        if self._on_the_way.pop(row, None) is None:
            self._stops[self._replica_of[row] - self._first].abort(row)
        self.finished(row)

    def finished(self, row: int) -> None:
        """The replica has ended this request."""
        index = int(self._replica_of[row]) - self._first
        self._slots[index].ended(row)
        self._policy.finished(self._state, self._request(row), index)
        self._bind_soon()

    def close(self) -> None:
        """The run is over: what is held here has waited until now."""
        for row, since_ns in self._held:
            self._waited(row, since_ns)

    def _reported(self) -> None:
        for slot in self._slots:
            slot.reported(self._on_the_way)
