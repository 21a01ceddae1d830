"""Source: sends each request at its arrival time. A SimPy process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import simpy

from llmqsim import clock
from llmqsim.requests import Outcome, RequestTable


def open_loop(env: simpy.Environment, table: RequestTable, submit: Callable[[int], None]):
    """Hand over every row at its arrival, whatever happened to those before it; rejected rows never leave."""
    rows = np.flatnonzero(table.outcome != Outcome.REJECTED)
    reached_ns = -1
    for row, arrival_ns in zip(rows.tolist(), table.arrival_ns[rows].tolist(), strict=True):
        if arrival_ns > reached_ns:
            yield clock.At(env, arrival_ns, clock.DELIVER)
            reached_ns = arrival_ns
        submit(row)
