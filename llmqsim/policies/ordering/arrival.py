"""Orderings by arrival and by priority, and two references that nobody should want: last come first served, random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.policies.ordering.fixed import Fixed
from llmqsim.policies.protocol import FixedKeys, Ordering, OrderingTable, RequestView
from llmqsim.registry import param, register


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
    """Most urgent class first (lowest `priority`), then by arrival; a preempted request is sorted in again (vLLM's).

    preempt : may it take the place of a running one that is less urgent? vLLM lets it wait; theory knows both (Cobham
    1954 without, White and Christie 1958 with).
    """

    preempt: bool = False

    preempted_go_first = False

    @property
    def preempts(self) -> bool:
        """As the parameter says."""
        return self.preempt

    def key(self, request: RequestView) -> tuple[int, int]:
        """Priority, then arrival time."""
        return request.priority, request.arrival_ns

    def late_key(self, request: RequestView, now_ns: int) -> tuple[int, int]:
        """Behind all of its priority."""
        return request.priority, now_ns

    def fixed_keys(self, table: OrderingTable) -> FixedKeys:
        """Priority, then arrival time."""
        return FixedKeys(table.priority, np.zeros(len(table), np.int64), slope=1)


@register("ordering", "lifo")
@dataclass(frozen=True)
class Lifo(Fixed):
    """Last come, first served: a reference. Same mean wait as fcfs in theory (M/G/1), and a terrible tail."""

    slope = -1

    def base_ns(self, of) -> int:
        """Arrival alone."""
        return 0


@register("ordering", "random")
@dataclass(frozen=True)
class Random(Ordering):
    """At random: a reference. Each request draws its place once, from its number and `seed`."""

    seed: int = param(0, least=0)

    def key(self, request: RequestView) -> tuple[int, int]:
        """Its draw."""
        return 0, int(_mixed(np.array([request.row]), self.seed)[0])

    def late_key(self, request: RequestView, now_ns: int) -> tuple[int, int]:
        """Behind, most likely."""
        return 0, self.key(request)[1] + now_ns

    def fixed_keys(self, table: OrderingTable) -> FixedKeys:
        """All draws."""
        rows = len(table)
        return FixedKeys(np.zeros(rows, np.int64), _mixed(np.arange(rows), self.seed), slope=0)


def _mixed(rows: np.ndarray, seed: int) -> np.ndarray:
    """Numbers below 2^60 that look random, int64[n]: SplitMix64 (Steele et al. 2014) of row and seed."""
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64((seed * 0xD1342543DE82EF95 + 1) & 0xFFFFFFFFFFFFFFFF)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((z ^ (z >> np.uint64(31))) >> np.uint64(4)).astype(np.int64)
