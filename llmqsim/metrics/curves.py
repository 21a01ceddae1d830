"""How latencies are distributed, and who kept the SLO by class and by length: what a page or a figure draws of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmqsim.metrics import latency, slo
from llmqsim.metrics.distribution import NS_PER_S, describe_ns
from llmqsim.metrics.waiting import WORDS
from llmqsim.requests import UNSET, Outcome

POINTS = 160
"""ranks at which a distribution is read off"""
TENTHS = 10
SLOWEST = 50


def distribution(values: np.ndarray) -> tuple[list[float], list[float]]:
    """Durations in ns (any order) as (seconds, share of requests that took no longer), at POINTS ranks and the last ones."""
    ordered, n = np.sort(values), len(values)
    if not n:
        return [], []
    even = np.linspace(0, n - 1, POINTS)
    tail = n - 1 - np.geomspace(1, max(1, n / POINTS), 20)
    ranks = np.unique(np.clip(np.round(np.concatenate([even, tail])), 0, n - 1).astype(np.int64))
    return [float(f"{v / NS_PER_S:.6g}") for v in ordered[ranks].tolist()], [
        float(f"{(r + 1) / n:.6g}") for r in ranks.tolist()
    ]


def distributions(result: Any) -> dict[str, tuple[list[float], list[float]]]:
    """`distribution` of TTFT, TPOT, E2E and the wait before the first step, of the measured requests that completed."""
    return {
        metric: distribution(latency.per_request_ns(result.table, metric, result.measured))
        for metric in ("ttft", "tpot", "e2e", "wait")
    }


def by_length(result: Any) -> list[dict[str, Any]]:
    """The measured requests in tenths by prompt and output tokens together, from the shortest.

    least, most : tokens; requests; attainment (None without an SLO); ttft_p99_s, e2e_p99_s of those completed; waits : mean
    seconds by reason of those taken in; preemptions.
    """
    table, rows = result.table, np.flatnonzero(result.measured)
    size = table.prompt_tokens + table.output_tokens
    order = rows[np.argsort(size[rows], kind="stable")]
    return [_part(result, part, size) for part in np.array_split(order, TENTHS) if len(part)]


def _part(result: Any, part: np.ndarray, size: np.ndarray) -> dict[str, Any]:
    table = result.table
    mask = np.zeros(len(table), dtype=bool)
    mask[part] = True
    taken = mask & (table.outcome != Outcome.REJECTED)
    return {
        "least": int(size[part].min()),
        "most": int(size[part].max()),
        "requests": len(part),
        "attainment": slo.stand_all(result, result.promised & mask).share,
        "ttft_p99_s": describe_ns(latency.per_request_ns(table, "ttft", mask))["p99"],
        "e2e_p99_s": describe_ns(latency.per_request_ns(table, "e2e", mask))["p99"],
        "waits": waits(table, taken),
        "preemptions": int(table.preemptions[mask].sum()),
    }


def waits(table: Any, taken: np.ndarray) -> dict[str, float | None]:
    """Mean seconds that the requests of a mask waited, by reason; None where there are none."""
    n = int(taken.sum())
    return {name: float(getattr(table, f"wait_{name}_ns")[taken].sum()) / n / NS_PER_S if n else None for name in WORDS}


def slowest(result: Any, most: int = SLOWEST) -> list[dict[str, Any]]:
    """The measured requests with the longest time to the last token, or to giving up; those without an end come first."""
    table = result.table
    rows = np.flatnonzero(result.measured & (table.outcome != Outcome.REJECTED))
    left = np.maximum(table.finish_ns, table.gave_up_ns)[rows]
    took = np.where(left == UNSET, np.iinfo(np.int64).max, left - table.arrival_ns[rows])
    met = slo.stand_all(result, result.promised)
    return [_request(result, int(row), met) for row in rows[np.argsort(-took, kind="stable")[:most]]]


def _request(result: Any, row: int, seen: slo.Standing) -> dict[str, Any]:
    table = result.table
    begun, ended = table.first_token_ns[row] != UNSET, table.finish_ns[row] != UNSET
    reasons = {name: int(getattr(table, f"wait_{name}_ns")[row]) for name in WORDS}
    longest = max(reasons, key=lambda name: reasons[name])
    return {
        "request": row,
        "arrival_s": int(table.arrival_ns[row]) / NS_PER_S,
        "class": table.classes[table.class_id[row]],
        "prompt_tokens": int(table.prompt_tokens[row]),
        "output_tokens": int(table.output_tokens[row]),
        "ttft_s": int(table.first_token_ns[row] - table.arrival_ns[row]) / NS_PER_S if begun else None,
        "e2e_s": int(table.finish_ns[row] - table.arrival_ns[row]) / NS_PER_S if ended else None,
        "waited_s": sum(reasons.values()) / NS_PER_S,
        "waited_for": longest if reasons[longest] else None,
        "preemptions": int(table.preemptions[row]),
        "outcome": Outcome(int(table.outcome[row])).name.lower(),
        "met": bool(seen.met[row]) if seen.asked[row] else None,
    }
