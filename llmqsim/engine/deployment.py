"""Deployment: everything about the servers of a run that is fixed before the clock starts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from llmqsim.cost.lower import StepCost
from llmqsim.cost.stations import Stations
from llmqsim.engine.costs import ProfiledCosts
from llmqsim.kv.capacity import KvCapacity
from llmqsim.kv.pool import KvPool
from llmqsim.kv.prefix import PrefixPool
from llmqsim.kv.transfer import HostLink
from llmqsim.options import EngineOptions, HostCost
from llmqsim.policies.admission import All
from llmqsim.requests import RequestTable


@dataclass(frozen=True)
class Deployment:
    """Replicas of one kind behind one router. Policies are built objects, see llmqsim.policies."""

    replicas: int
    options: EngineOptions
    host: HostCost
    cost: StepCost | Stations
    """Stations: replicas are no engines, see cluster/stations.py"""
    capacity: KvCapacity | None
    """None: a KV pool that never binds"""
    routing: object
    batching: object
    ordering: object
    preemption: object
    admission: object = field(default=All())
    signal_age_ns: int = 0
    """how often replicas report to the router; 0: it sees them as they are"""
    late_binding: int | None = None
    """most requests in flight at a replica, others wait at the router; None: all are sent at once"""

    def __post_init__(self) -> None:
        """Policies that ask what steps cost are told (a field `costs`)."""
        if isinstance(self.cost, Stations):
            return
        costs = ProfiledCosts(self.cost, self.link, self.options.max_num_batched_tokens)
        for name in ("batching", "ordering", "preemption"):
            policy = getattr(self, name)
            if hasattr(policy, "costs"):
                object.__setattr__(self, name, replace(policy, costs=costs))

    @property
    def kv_blocks(self) -> int | None:
        """Blocks of each replica's pool as vLLM logs them (one of them is not usable); None: unlimited."""
        return None if self.capacity is None else self.capacity.blocks

    @property
    def watermark_blocks(self) -> int:
        """Blocks that an admission must leave free."""
        return int(self.options.watermark * (self.kv_blocks or 0))

    @property
    def cold_steps(self) -> int:
        """Steps with a prefill chunk that are slow because the server has just started."""
        return self.host.cold_steps if self.options.cold_start else 0

    @property
    def link(self) -> HostLink:
        """Between each GPU and its host."""
        per_block = self.capacity.bytes_per_block_per_gpu if self.capacity else None
        options = self.options
        return HostLink(per_block or 0, options.host_link_bytes_per_s, round(options.swap_block_s * 1e9))

    @property
    def swap_blocks(self) -> int:
        """Blocks that the host holds for preempted requests."""
        return self._host_blocks(self.options.swap_space_bytes)

    @property
    def offload_blocks(self) -> int:
        """Blocks that the host keeps of what lost its place in the prefix cache."""
        return self._host_blocks(self.options.kv_offloading_bytes)

    def pool(self, table: RequestTable) -> KvPool:
        """A new KV pool of one replica."""
        options = self.options
        if not options.enable_prefix_caching or self.kv_blocks is None:
            return KvPool(self.kv_blocks, options.block_size)
        prefixes = table.prefixes
        pool = PrefixPool(
            self.kv_blocks,
            options.block_size,
            prefixes.row if prefixes is not None else lambda row: [],
            options.unhashed_blocks_first,
            self.offload_blocks,
        )
        if prefixes is not None and prefixes.warm:
            pool.warm(prefixes.row(row) for row in range(len(table)))
        return pool

    def _host_blocks(self, host_bytes: int) -> int:
        per_block = self.capacity.bytes_per_block_per_gpu if self.capacity else None
        return host_bytes // per_block if per_block else 0
