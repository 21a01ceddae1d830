"""Source: calls for each request when it is due. A SimPy process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import simpy

from llmqsim import clock


def open_loop(env: simpy.Environment, rows: np.ndarray, due_ns: np.ndarray, send: Callable[[int], None]):
    """Hand over every row (int64[n]) at its time (int64[n] ns, sorted), whatever happened to those before it."""
    reached_ns = -1
    for row, time_ns in zip(rows.tolist(), due_ns.tolist(), strict=True):
        if time_ns > reached_ns:
            yield clock.At(env, time_ns, clock.DELIVER)
            reached_ns = time_ns
        send(row)
