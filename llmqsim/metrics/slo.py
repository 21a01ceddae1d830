"""Who got what was promised: attainment over arrivals, and goodput.

A request meets the SLO when it completed and every target holds (at most the target). Rejected and unfinished requests
are misses, or overload would flatter itself. A one-token request has no TPOT, so a TPOT target can't be missed by it.
"""

from __future__ import annotations

import numpy as np

from llmqsim.metrics.distribution import NS_PER_S, ratio
from llmqsim.metrics.latency import completed
from llmqsim.requests import RequestTable

TARGETS: tuple[str, ...] = ("ttft_s", "tpot_s", "e2e_s")


def meets(table: RequestTable, target: str, limit_s: float) -> np.ndarray:
    """Mask of the completed requests that keep one target, bool[rows]. `target` is one of TARGETS."""
    if target == "ttft_s":
        value_ns = table.first_token_ns - table.arrival_ns
    elif target == "e2e_s":
        value_ns = table.finish_ns - table.arrival_ns
    elif target == "tpot_s":
        gaps = table.generated_tokens - 1
        value_ns = np.where(gaps > 0, (table.finish_ns - table.first_token_ns) / np.maximum(gaps, 1), 0.0)
    else:
        raise KeyError(target)
    return completed(table) & (value_ns / NS_PER_S <= limit_s)


def targets_of(slo: dict) -> dict[str, float]:
    """The latency targets that an `slo` mapping sets, seconds."""
    return {t: slo[t] for t in TARGETS if slo.get(t) is not None}


def meets_all(table: RequestTable, slo: dict) -> np.ndarray:
    """Mask of the requests that completed within every target, bool[rows]."""
    kept = completed(table)
    for target, limit_s in targets_of(slo).items():
        kept = kept & meets(table, target, limit_s)
    return kept


def attainment(table: RequestTable, slo: dict, rows: np.ndarray) -> float | None:
    """Share of the arrivals in a mask (bool[rows]) that meet every target; None without targets or arrivals."""
    if not targets_of(slo):
        return None
    return ratio(int((meets_all(table, slo) & rows).sum()), int(rows.sum()))


def report(table: RequestTable, slo: dict, rows: np.ndarray) -> dict:
    """targets, share by target, the attainment asked for, and whether it was met (None without an SLO)."""
    targets = targets_of(slo)
    share = attainment(table, slo, rows)
    wanted = slo.get("attainment") if targets else None
    arrived = int(rows.sum())
    return {
        "targets": targets,
        "by_target": {t: ratio(int((meets(table, t, s) & rows).sum()), arrived) for t, s in targets.items()},
        "target": wanted,
        "met": None if share is None or wanted is None else share >= wanted,
    }
