"""Clients of several kinds before the random clusters of compiled_cases.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmqsim.clients import Clients, Loop


@dataclass(frozen=True)
class Crowd:
    """Clients of several kinds. closed : of each four rows, how many belong to closed loops (in turn, if two)."""

    closed: int
    sizes: tuple[int, ...]
    """clients of each loop"""
    ramp_up_ns: int
    stop_ns: int | None
    drain: bool
    cap: int | None
    timeout_ns: int | None

    def clients(self, count: int, turnaround_ns: int) -> Clients:
        """As a run takes them."""
        rows = np.flatnonzero(np.arange(count) % 4 < self.closed)
        loops = []
        for index, clients in enumerate(self.sizes):
            mine = rows[index :: len(self.sizes)]
            drain = len(mine) // 2 if self.drain and index == 0 else None
            loops.append(Loop(mine, clients, self.ramp_up_ns, self.stop_ns, drain))
        return Clients(tuple(loops), self.cap, turnaround_ns, self.timeout_ns)
