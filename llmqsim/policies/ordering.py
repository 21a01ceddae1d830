"""Ordering: who is next in the waiting queue?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.policies.protocol import FixedKeys, Ordering, OrderingTable, RequestView
from llmqsim.registry import register


@register("ordering", "fcfs")
@dataclass(frozen=True)
class Fcfs(Ordering):
    """First come, first served; a preempted request goes back to the front (vLLM's default)."""

    def key(self, request: RequestView) -> int:
        """Arrival time."""
        return request.arrival_ns

    def late_key(self, request: RequestView, now_ns: int) -> int:
        """Now: nobody in the queue has arrived later."""
        return now_ns

    def fixed_keys(self, table: OrderingTable) -> FixedKeys:
        """Arrival time."""
        return FixedKeys(np.zeros(len(table), np.int64), np.zeros(len(table), np.int64), slope=1)


@register("ordering", "priority")
@dataclass(frozen=True)
class Priority(Ordering):
    """Most urgent class first (lowest `priority`), then by arrival; a preempted request is sorted in again (vLLM's)."""

    preempted_go_first = False

    def key(self, request: RequestView) -> tuple[int, int]:
        """Priority, then arrival time."""
        return request.priority, request.arrival_ns

    def late_key(self, request: RequestView, now_ns: int) -> tuple[int, int]:
        """Behind all of its priority."""
        return request.priority, now_ns

    def fixed_keys(self, table: OrderingTable) -> FixedKeys:
        """Priority, then arrival time."""
        return FixedKeys(table.priority, np.zeros(len(table), np.int64), slope=1)
