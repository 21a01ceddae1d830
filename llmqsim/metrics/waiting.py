"""What the requests waited for, from the columns that the engine charges as it refuses or delays a request."""

from __future__ import annotations

import numpy as np

from llmqsim.metrics.distribution import NS_PER_S, exact_sum, ratio
from llmqsim.requests import WAITS, RequestTable

WORDS: dict[str, str] = {
    "router": "a replica with a place (routing.late_binding)",
    "slots": "a free slot (max_num_seqs)",
    "kv": "free KV blocks",
    "token_budget": "room in a step's token budget",
    "preempted": "resuming after a preemption",
    "step": "the next step to be formed",
}
"""Each reason in words, in the order of the report."""


def waiting_for(table: RequestTable, served: np.ndarray) -> dict:
    """Mean seconds per request of a mask (bool[rows]: arrived, not rejected) and share of all waiting, by reason.

    `largest` is the reason with the greatest share; None when nobody waited.
    """
    total_ns = {name: int(exact_sum(getattr(table, f"wait_{name}_ns")[served])) for name in WORDS}
    return shares(total_ns, int(served.sum()))


def shares(total_ns: dict[str, int], requests: int) -> dict:
    """`waiting_for` of sums by reason over so many requests."""
    total_ns = {name: total_ns[name] for name in WORDS}
    everything = sum(total_ns.values())
    shown: dict = {
        name: {"mean_s": ratio(ns, requests * NS_PER_S), "share": ratio(ns, everything)}
        for name, ns in total_ns.items()
    }
    shown["largest"] = max(total_ns, key=lambda name: total_ns[name]) if everything else None
    return shown


if {f"wait_{name}_ns" for name in WORDS} != set(WAITS):
    raise ImportError("metrics.waiting and requests.COLUMNS disagree on the reasons for waiting")
