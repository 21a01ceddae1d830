"""Warm-up: which requests to leave out of the figures because they met an empty system, as declared or as detected.

MSER-5 (White, Cobb and Spratt 2000): average the series in fives, and drop as many leading fives as make the standard
error of the mean of the rest smallest, at most half of them. A minimum in that half's last tenth is no end of the
start-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmqsim.metrics.latency import completed, per_request_ns
from llmqsim.requests import UNSET, RequestTable

BATCH = 5
LEAST_BATCHES = 10
"""with fewer there is nothing to compare"""
SERIES = ("ttft", "e2e")


@dataclass(frozen=True)
class Cut:
    """What is left out: rows (bool[rows]), up to when (ns, the first arrival that counts), how it was found.

    settled : did the detection find an end of the start-up? None where the cut was declared. series : what it shows in.
    """

    rows: np.ndarray
    until_ns: int
    method: str
    settled: bool | None = None
    series: str | None = None


def mser5(values: Sequence[int]) -> int | None:
    """Observations to drop from the start of a series of integers: a multiple of 5; None when there is no end of it."""
    whole = len(values) // BATCH
    if whole < LEAST_BATCHES:
        return None
    batches = [sum(int(v) for v in values[BATCH * i : BATCH * (i + 1)]) for i in range(whole)]
    total, squares = sum(batches), sum(b * b for b in batches)
    best, kept = None, 0
    for dropped in range(whole // 2 + 1):
        left = whole - dropped
        # left^3 times the squared standard error, in exact integers until here: equal candidates stay equal
        error = (left * squares - total * total) / left**3
        if best is None or error < best:
            best, kept = error, dropped
        total, squares = total - batches[dropped], squares - batches[dropped] ** 2
    return None if kept > 0.9 * (whole // 2) else BATCH * kept


def cut(table: RequestTable, arrived: np.ndarray, warmup: Any) -> Cut | None:
    """The cut that `run.warmup` asks for ("auto", {requests}, {time: s}); None without one. arrived : bool[rows]."""
    if warmup is None or not arrived.any():
        return None
    order = np.flatnonzero(arrived)
    order = order[np.argsort(table.arrival_ns[order], kind="stable")]
    if warmup == "auto":
        return _detected(table, order)
    if "requests" in warmup:
        return _first(table, order, warmup["requests"], "requests")
    before = int((table.arrival_ns[order] < round(warmup["time"] * 1e9)).sum())
    return _first(table, order, before, "time")


def _first(table: RequestTable, order: np.ndarray, count: int, method: str, **more: Any) -> Cut:
    rows = np.zeros(len(table), dtype=bool)
    rows[order[:count]] = True
    last = min(count, len(order) - 1)
    return Cut(rows, int(table.arrival_ns[order[last]]), method, **more)


def _detected(table: RequestTable, order: np.ndarray) -> Cut:
    """The longest start-up that TTFT or E2E shows, in order of arrival, over the completed requests."""
    done = completed(table)
    counted = np.flatnonzero(done[order])  # place in the order of arrival of each completed request
    metrics = {}
    for metric in SERIES:
        values = np.zeros(len(table), dtype=np.int64)
        values[done] = per_request_ns(table, metric, done)
        metrics[metric] = mser5(values[order[counted]].tolist())
    unsettled = [metric for metric, dropped in metrics.items() if dropped is None]
    if unsettled:
        return _first(table, order, 0, "mser5", settled=False, series=unsettled[0])
    series = max(SERIES, key=lambda metric: metrics[metric])
    dropped = metrics[series]
    count = int(counted[dropped]) if dropped else 0
    return _first(table, order, count, "mser5", settled=True, series=series)


def restarts_with_a_burst(table: RequestTable, measured: np.ndarray) -> int:
    """Clients of closed loops that start together on an empty system when the measured part begins; 0: they don't."""
    if not (measured & (table.client != UNSET)).any():
        return 0
    start = int(table.arrival_ns[measured].min())
    left = np.where(table.finish_ns != UNSET, table.finish_ns, table.gave_up_ns)
    sent_before = (table.arrival_ns != UNSET) & (table.arrival_ns < start)
    if (sent_before & ((left == UNSET) | (left > start))).any():
        return 0
    together = int((measured & (table.arrival_ns == start) & (table.client != UNSET)).sum())
    clients = len(np.unique(table.client[measured & (table.client != UNSET)]))
    return together if together >= max(2, clients / 2) else 0
