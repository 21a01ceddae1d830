"""Who was left waiting: the longest time without a token, by size of request, because means hide starvation."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmqsim.metrics.distribution import NS_PER_S, exact_sum
from llmqsim.metrics.latency import completed
from llmqsim.requests import UNSET, Outcome, RequestTable

EDGES = (256, 1024, 4096, 16_384, 65_536)
"""tokens of prompt and answer together at which a size class begins"""
TOO_LONG = 10
"""starved: without a token for so many times the mean E2E, more for requests larger than the mean in proportion"""


def starvation(table: RequestTable, rows: np.ndarray, end_ns: int) -> dict[str, Any]:
    """Figures of the served requests of a mask (bool[rows]); end_ns : when the run ended, for those without an answer.

    longest_wait : size class -> n, mean_s and longest_s of the longest time that a request was without a token: until
    its first one, or between two. starved : how many were so for TOO_LONG, and their size classes.
    """
    size = table.prompt_tokens + table.output_tokens
    without = _without_token_ns(table, end_ns)
    number = np.searchsorted(EDGES, size, side="right")
    long = rows & (without > _allowed_ns(table, rows, size))
    by_size = {}
    for at in np.unique(number[rows]).tolist():
        mine = rows & (number == at)
        waited = without[mine]
        by_size[size_label(at)] = {
            "n": int(mine.sum()),
            "mean_s": exact_sum(waited) / (len(waited) * NS_PER_S),
            "longest_s": int(waited.max()) / NS_PER_S,
            "starved": int((long & mine).sum()),
        }
    return {"starved": int(long.sum()), "longest_wait": by_size}


def _without_token_ns(table: RequestTable, end_ns: int) -> np.ndarray:
    """Longest time of each request without a token, int64[rows] ns."""
    gave_up = table.outcome == Outcome.TIMED_OUT
    until = np.where(gave_up & (table.gave_up_ns != UNSET), table.gave_up_ns, end_ns)
    first = np.where(table.first_token_ns != UNSET, table.first_token_ns, until)
    return np.maximum(np.maximum(first - table.arrival_ns, table.max_itl_ns), 0)


def _allowed_ns(table: RequestTable, rows: np.ndarray, size: np.ndarray) -> np.ndarray:
    """How long each may be without a token before it counts as starved, float64[rows] ns."""
    done = completed(table) & rows
    if not done.any():
        return np.full(len(table), np.inf)
    mean_ns = exact_sum((table.finish_ns - table.arrival_ns)[done]) / int(done.sum())
    mean_size = exact_sum(size[rows]) / int(rows.sum())
    return TOO_LONG * mean_ns * np.maximum(1.0, size / mean_size)


def size_label(number: int) -> str:
    """The size class in words, tokens."""
    if number == 0:
        return f"below {EDGES[0]}"
    if number == len(EDGES):
        return f"from {EDGES[-1]:,}"
    return f"{EDGES[number - 1]:,} to {EDGES[number] - 1:,}"
