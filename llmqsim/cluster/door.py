"""Door: where requests enter a fleet of several pools: placement says where they go, and here is known where they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import simpy

from llmqsim.cluster.fleet import DECODE, PREFILL, Fleet, Pool
from llmqsim.cluster.handoff import HandOffs
from llmqsim.cluster.router import Router, Stop
from llmqsim.cluster.trip import Trip
from llmqsim.engine import rules
from llmqsim.engine.handoff import Handoff
from llmqsim.engine.reference import ReferenceReplica
from llmqsim.engine.sequence import Sequence
from llmqsim.requests import HANDOFF_INDEX, INDEX, HandoffTable, RequestTable
from llmqsim.units import to_ns


@dataclass(frozen=True)
class Arrival:
    """policies.protocol.PlacedRequest."""

    row: int
    prompt_tokens: int
    max_tokens: int
    class_name: str


class OpenPool:
    """One pool of a run: its replicas, its router, and the view of it that placement has (policies.protocol.PoolView)."""

    def __init__(self, pool: Pool, replicas: list[ReferenceReplica], router: Router, table: RequestTable):
        self.name, self.role = pool.name, pool.role
        self.router = router
        self.block_size = pool.deployment.options.block_size
        self.after_ns = to_ns(pool.deployment.host.request_after_s)
        self.chosen: dict[int, int] = {}
        """row -> place of its replica, where placement has asked"""
        self._replicas = replicas
        self._table = table

    @property
    def outstanding(self) -> int:
        """Requests sent here and not yet finished."""
        return self.router.outstanding

    def hit_tokens(self, row: int) -> int:
        """Leading prompt tokens cached now at the replica that the router chooses, which settles the choice."""
        if row not in self.chosen:
            self.chosen[row] = self.router.choose(row)
        replica = self._replicas[self.chosen[row]]
        return replica.pool.hit_tokens(Sequence(self._table, row))[0]


class Door:
    """`submit`, `abort` and `finished` are what a single router offers; `finished` is told by whoever ends a request."""

    def __init__(
        self,
        env: simpy.Environment,
        table: RequestTable,
        fleet: Fleet,
        replicas: list[ReferenceReplica],
        on_finish: Callable[[int], None],
    ):
        table.handoffs = HandoffTable(len(table)) if fleet.split else None
        self.handoffs = HandOffs(env, table, fleet, self._alone) if fleet.split else None
        self._env = env
        self._table = table
        self._fleet = fleet
        self._on_finish = on_finish
        self._with: dict[int, Router] = {}
        self._pools: dict[str, OpenPool] = {}
        for pool in fleet.pools:
            first = fleet.first_replica(pool.name)
            self._open(pool, replicas[first : first + pool.deployment.replicas], first)

    def _open(self, pool: Pool, replicas: list[ReferenceReplica], first: int) -> None:
        """Wire one pool."""
        table, servers = self._table, pool.deployment
        replica_of = table.data[INDEX["replica"]]
        if pool.role == PREFILL:
            replica_of = table.handoffs.data[HANDOFF_INDEX["prefill_replica"]]
        stops = [Stop(self._stop(replica, pool.role), replica.abort, replica.report) for replica in replicas]
        router = Router(self._env, table, servers, stops, replica_of, first, self._fleet.draws_of(table.draws, pool.name))
        self._pools[pool.name] = OpenPool(pool, replicas, router, table)
        for replica in replicas:
            self._listen(replica, pool.role)

    def _stop(self, replica: ReferenceReplica, role: str) -> Callable[[int], object]:
        if role == DECODE and self.handoffs is not None:
            return lambda row: self.handoffs.deliver(row, replica)
        return replica.submit

    def _listen(self, replica: ReferenceReplica, role: str) -> None:
        """Whom a replica tells what it did."""
        if role == PREFILL:
            replica.on_finish = self._ended_early
            replica.on_prefilled = lambda sequence: self.handoffs.prefilled(sequence, replica)
            replica.on_chunk = self.handoffs.chunk
        else:
            replica.on_finish = self._finished
            replica.on_load = lambda sequence: self.handoffs.load(sequence, replica)

    def submit(self, row: int) -> None:
        """A request arrives."""
        table = self._table
        class_name = table.classes[table.class_id[row]]
        request = Arrival(row, int(table.prompt_tokens[row]), int(table.max_tokens[row]), class_name)
        route = self._fleet.placement.stages(request, self._pools)
        last = self._pools[route[-1]]
        chosen = last.chosen.pop(row, None) is not None
        if len(route) == 1:
            self._with[row] = last.router
            if not chosen:
                last.router.choose(row)
            last.router.send(row, self._env.now)
            return
        first = self._pools[route[0]]
        blocks = rules.blocks_for(request.prompt_tokens, first.block_size)
        self.handoffs.begin(
            Trip(
                row=row,
                handoff=Handoff(row, self._fleet.terms, blocks),
                lane=self._fleet.lanes[route],
                prefill=first.router,
                decode=last.router,
                prompt_tokens=request.prompt_tokens,
                block_size=first.block_size,
                arrived_ns=self._env.now,
                after_ns=first.after_ns,
                chosen=chosen,
            )
        )

    @property
    def waiting(self) -> int:
        """Requests in the queues of all replicas, as they last reported."""
        return sum(pool.router.waiting for pool in self._pools.values())

    def close(self) -> None:
        """The run is over."""
        for pool in self._pools.values():
            pool.router.close()

    def abort(self, row: int) -> None:
        """The client has given up."""
        if self.handoffs is None or not self.handoffs.abort(row):
            self._with.pop(row).abort(row)

    def _alone(self, row: int, router: Router) -> None:
        """A request has become its decode replica's alone."""
        self._with[row] = router

    def _finished(self, row: int) -> None:
        self._with.pop(row).finished(row)
        self._on_finish(row)

    def _ended_early(self, row: int) -> None:
        self.handoffs.ended(row)
        self._on_finish(row)


