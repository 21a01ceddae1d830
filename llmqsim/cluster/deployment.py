"""Deployment: everything about the servers of a run that is fixed before the clock starts."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.cost.lower import StepCost
from llmqsim.kv.capacity import KvCapacity
from llmqsim.options import EngineOptions, HostCost


@dataclass(frozen=True)
class Deployment:
    """Replicas of one kind behind one router. Policies are built objects, see llmqsim.policies."""

    replicas: int
    options: EngineOptions
    host: HostCost
    cost: StepCost
    capacity: KvCapacity | None
    """None: a KV pool that never binds"""
    routing: object
    batching: object
    ordering: object
    preemption: object

    @property
    def kv_blocks(self) -> int | None:
        """Blocks of each replica's pool as vLLM logs them (one of them is not usable); None: unlimited."""
        return None if self.capacity is None else self.capacity.blocks
