"""What the clients of a run do, as data: who waits for answers before sending more, how many, and how long."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Loop:
    """A closed loop: `clients` take `rows` (int64[n], rows of the request table) one by one, first free first."""

    rows: np.ndarray
    clients: int
    ramp_up_ns: int = 0
    """clients start evenly over this time; 0: all at once"""
    stop_ns: int | None = None
    """nothing is sent at or after this time"""
    drain_after: int | None = None
    """once so many requests were sent, everybody waits until all of them are answered, then all go on at once"""


@dataclass(frozen=True)
class Retries:
    """Who was refused, or gave up, sends the same request again, so long after: delays_ns int64[rows, attempts]."""

    delays_ns: np.ndarray
    after_refusal: bool = True
    after_timeout: bool = True


@dataclass(frozen=True)
class Clients:
    """Rows in no loop are sent when they are due, whatever happens to others, unless `max_in_flight` holds back."""

    loops: tuple[Loop, ...] = field(default=())
    max_in_flight: int | None = None
    turnaround_ns: int = 0
    """from the last token of an answer to the request that it lets go"""
    timeout_ns: int | None = None
    """a client gives up when its answer is not complete this long after sending"""
    retries: Retries | None = None
    """None: nobody tries again"""
