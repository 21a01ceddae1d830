"""Figures of pools: what each did, what the hand-off between them took, and how busy its links were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from llmqsim.metrics import usage
from llmqsim.metrics.distribution import describe_ns, ratio
from llmqsim.requests import Handoff, RequestTable

if TYPE_CHECKING:
    from llmqsim.result import Result

PREFILL = "prefill"


def answering(result: Result) -> dict[str, Any] | None:
    """The first pool that gives answers; None without pools."""
    return next((pool for pool in result.pools if pool["role"] != PREFILL), None)


def usage_of(result: Result, pool: dict[str, Any] | None) -> tuple:
    """Usage of a pool's replicas; of all without one."""
    if pool is None:
        return result.usage
    first = pool["first_replica"]
    return result.usage[first : first + pool["replicas"]]


def by_pool(result: Result, window: usage.Window) -> dict[str, dict[str, Any]]:
    """Each pool: what it is, how busy, how full. Empty without pools."""
    found, traffic = {}, usage.arriving(result.table, result.arrived)
    for pool in result.pools:
        its = usage_of(result, pool)
        found[pool["name"]] = {
            **{key: pool[key] for key in ("role", "replicas", "gpus", "first_replica")},
            "requests": sum(u.requests for u in its),
            "utilisation": usage.utilisation(its, window, traffic),
            "kv": usage.kv(its, window, pool["kv"]),
            "preemptions": sum(u.preemptions for u in its),
            "recomputed_tokens": sum(u.recomputed_tokens for u in its),
        }
    return found


def handoff(result: Result, rows: np.ndarray, window: usage.Window) -> dict[str, Any] | None:
    """The way from prefill to decode of the requests of a mask (bool[rows]); None where nothing is handed over."""
    table = result.table
    if table.handoffs is None:
        return None
    marks = table.handoffs
    counts = {code.name.lower(): int(((marks.handoff == code) & rows).sum()) for code in Handoff}
    done = rows & (marks.handoff == Handoff.DONE) & (marks.resumed_ns >= 0)
    blocks, size = int(marks.transfer_blocks.sum()), int(marks.transfer_bytes.sum())
    return {
        "requests": counts,
        "split_share": ratio(int(rows.sum()) - counts["none"], int(rows.sum())),
        **_parts(table, done),
        "blocks": blocks,
        "bytes": size,
        "links": _links(result, window),
    }


def _parts(table: RequestTable, done: np.ndarray) -> dict[str, Any]:
    """Where the time goes between the end of a prompt's computation and the first step where it decodes.

    Sent while it is computed, a transfer ends soon after; what had been sent before counts as no wait.
    """
    marks = table.handoffs
    ready, start = marks.prefilled_ns[done], marks.transfer_start_ns[done]
    end, resumed = marks.transfer_end_ns[done], marks.resumed_ns[done]
    begun = np.maximum(ready, np.minimum(start, end))
    return {
        "total_s": describe_ns(resumed - ready),
        "wait_s": describe_ns(begun - ready),
        "transfer_s": describe_ns(end - begun),
        "resume_s": describe_ns(resumed - end),
    }


def _links(result: Result, window: usage.Window) -> dict[str, dict[str, Any]]:
    """Each link that carried anything."""
    length = window.end_ns - window.start_ns
    return {
        link.name: {
            "transfers": link.transfers,
            "bytes": link.bytes,
            "busy": ratio(link.busy_ns, length),
            "mean_queue_s": ratio(link.queued_ns, link.transfers * 10**9),
        }
        for link in result.links
    }
