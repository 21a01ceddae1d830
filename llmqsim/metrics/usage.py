"""What the machines did: throughput, busy share, batch, KV occupancy, preemptions. Averages are over `Window`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmqsim.metrics.distribution import NS_PER_S, ratio
from llmqsim.metrics.latency import completed
from llmqsim.records import ReplicaUsage
from llmqsim.requests import Outcome, RequestTable


@dataclass(frozen=True)
class Window:
    """The stretch of simulated time that rates and averages are over."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / NS_PER_S


def makespan(table: RequestTable, arrived: np.ndarray, end_ns: int) -> Window:
    """First arrival to the last finish or time-out; to the end of the run where one of them is still in progress."""
    if not arrived.any():
        return Window(0, 0)
    start = int(table.arrival_ns[arrived].min())
    left = np.maximum(table.finish_ns, table.gave_up_ns)[arrived & (table.outcome != Outcome.REJECTED)]
    end = max(start, int(left.max(initial=start)))
    unfinished = arrived & (table.outcome == Outcome.UNFINISHED)
    return Window(start, max(end, end_ns) if unfinished.any() else end)


def throughput(table: RequestTable, rows: np.ndarray, window: Window) -> dict[str, float | None]:
    """Requests of a mask (bool[rows]) that are completed in the window, and their tokens, per second.

    What was sent before the window and ends in it counts, or a window that starts in full flight would look idle for
    as long as an answer takes.
    """
    done = completed(table) & rows & (table.finish_ns >= window.start_ns)
    prompts, outputs = int(table.prompt_tokens[done].sum()), int(table.generated_tokens[done].sum())
    counts = {
        "requests_per_s": int(done.sum()),
        "output_tokens_per_s": outputs,
        "prompt_tokens_per_s": prompts,
        "total_tokens_per_s": prompts + outputs,
    }
    return {name: ratio(count, window.seconds) for name, count in counts.items()}


def _whole(usage: Sequence[ReplicaUsage], window: Window) -> int:
    """Length of the window in ns, with the last step of a replica that ran past the last finish."""
    return max([window.end_ns, *(u.end_ns for u in usage)]) - window.start_ns


def arriving(table: RequestTable, arrived: np.ndarray) -> Window:
    """First arrival to the last: the time in which traffic comes, without the drain behind it."""
    if not arrived.any():
        return Window(0, 0)
    sent = table.arrival_ns[arrived]
    return Window(int(sent.min()), int(sent.max()))


def _busy_while_arriving(usage: Sequence[ReplicaUsage], traffic: Window, stop_ns: int) -> float | None:
    """Busy share of the time in which traffic comes, mean over replicas; None where all comes at once.

    A replica that has work left when the last request has come works until its last step ends, or the clock stops in a
    step (stop_ns); that is the drain.
    """
    length = traffic.end_ns - traffic.start_ns
    busy = 0
    for one in usage:
        drain = max(0, (stop_ns if one.cut_ns else one.end_ns) - traffic.end_ns)
        busy += min(max(0, one.busy_ns - drain), length)
    return ratio(busy, length * len(usage))


def utilisation(usage: Sequence[ReplicaUsage], window: Window, traffic: Window) -> dict:
    """Busy share, steps and batch; one entry a replica where a list is given. traffic : the time in which requests come."""
    length = _whole(usage, window)
    busy, steps = sum(u.busy_ns for u in usage), sum(u.steps for u in usage)
    tokens, whole_steps = sum(u.tokens for u in usage), busy - sum(u.cut_ns for u in usage)
    return {
        "busy": ratio(busy, length * len(usage)),
        "busy_while_arriving": _busy_while_arriving(usage, traffic, window.end_ns),
        "per_replica": [ratio(u.busy_ns, length) for u in usage],
        "requests_per_replica": [u.requests for u in usage],
        "steps": steps,
        "mean_step_s": ratio(whole_steps, steps * NS_PER_S),
        "mean_batch": ratio(sum(u.running_ns for u in usage), busy),
        "tokens_per_step": ratio(tokens, steps),
        "padded_share": ratio(sum(u.padded_tokens for u in usage), tokens + sum(u.padded_tokens for u in usage)),
        "running_mean": ratio(sum(u.running_ns for u in usage), length * len(usage)),
    }


def kv(usage: Sequence[ReplicaUsage], window: Window, capacity: dict | None) -> dict:
    """The KV pool of one replica, how much of it was used, and what else `capacity` says (formula, source, items ...).

    None where the run has no pool. One block is reserved by the engine, so it is not usable.
    sustained_concurrency.mean is over busy time; usage_mean and waiting.mean are over the window; all are means over
    replicas. Peaks are of the replica with the highest.
    """
    length, pool = _whole(usage, window), capacity or {}
    blocks, size = pool.get("blocks"), pool.get("block_size")
    usable = None if blocks is None else blocks - 1
    figures = {
        "blocks": blocks,
        "block_size": size,
        "tokens": pool.get("tokens"),
        "usable_tokens": None if usable is None or size is None else usable * size,
        "bytes_per_token": pool.get("bytes_per_token"),
        "guaranteed_concurrency": pool.get("guaranteed_concurrency"),
        "sustained_concurrency": {
            "mean": ratio(sum(u.running_ns for u in usage), sum(u.busy_ns for u in usage)),
            "peak": max((u.running_peak for u in usage), default=None),
        },
        "usage_mean": ratio(sum(u.kv_block_ns for u in usage), (usable or 0) * length * len(usage)),
        "usage_peak": ratio(max((u.kv_blocks_peak for u in usage), default=0), usable or 0),
        "waiting": {
            "mean": ratio(sum(u.waiting_ns for u in usage), length * len(usage)),
            "peak": max((u.waiting_peak for u in usage), default=None),
        },
    }
    return figures | {name: value for name, value in pool.items() if name not in figures}


def outside(usage: Sequence[ReplicaUsage]) -> dict[str, float | None]:
    """Share of steps beyond the measured box of the cost model, by axis (sorted)."""
    steps = sum(u.steps for u in usage)
    axes = sorted({axis for u in usage for axis, count in u.outside.items() if count})
    return {axis: ratio(sum(u.outside.get(axis, 0) for u in usage), steps) for axis in axes}


def prefix_cache(table: RequestTable, usage: Sequence[ReplicaUsage]) -> dict[str, float | int | None]:
    """Tokens that were not computed because their KV was cached, in all and as a share of the prompts that entered."""
    entered = table.first_scheduled_ns >= 0
    hits = int(table.cached_tokens[entered].sum())
    return {
        "hit_tokens": hits,
        "hit_share": ratio(hits, int(table.prompt_tokens[entered].sum())),
        "loaded_tokens": sum(u.loaded_tokens for u in usage),
    }
