"""What a run leaves behind beside its request rows: usage of each replica, gaps between tokens, the optional step log.

Memory grows with replicas and with what was asked for, never with the length of the run.
"""

# Part of machine code: kernels count into these bins.
from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

GAP_BITS = 8
"""Mantissa bits of a gap histogram bin: a bin is at most 2**-8 (0.4 %) of its value wide."""
GAP_BINS = (64 - GAP_BITS) << GAP_BITS


def gap_bin(gap_ns: int) -> int:
    """Bin of a gap (int ns >= 0): exact below 2**GAP_BITS ns, then GAP_BITS significant bits, all in integers."""
    exponent = gap_ns.bit_length() - GAP_BITS - 1
    if exponent <= 0:
        return gap_ns
    return ((exponent + 1) << GAP_BITS) + (gap_ns >> exponent) - (1 << GAP_BITS)


@cache
def gap_bin_edges() -> np.ndarray:
    """Lower edges of all bins, float64[GAP_BINS + 1], ns; not to be written to."""
    bins = np.arange(GAP_BINS + 1, dtype=np.float64)
    exponent = np.maximum((bins // (1 << GAP_BITS)) - 1, 0)
    mantissa = np.where(bins < (1 << GAP_BITS), bins, (bins % (1 << GAP_BITS)) + (1 << GAP_BITS))
    edges = mantissa * np.exp2(exponent)
    edges.flags.writeable = False
    return edges


class GapHistogram:
    """Gaps between successive tokens of a request (ITL), one histogram a class: counts, sums and maxima are exact."""

    def __init__(self, classes: int):
        self.counts = np.zeros((classes, GAP_BINS), dtype=np.int64)
        self.sum_ns = [0] * classes
        self.max_ns = [0] * classes

    def add(self, class_id: int, gap_ns: int, weight: int = 1) -> None:
        """Count `weight` tokens that came `gap_ns` after the token before them."""
        self.counts[class_id, gap_bin(gap_ns)] += weight
        self.sum_ns[class_id] += gap_ns * weight
        self.max_ns[class_id] = max(self.max_ns[class_id], gap_ns)


@dataclass
class ReplicaUsage:
    """What one replica did. Integrals are over time since 0 and exact in integers."""

    steps: int = 0
    busy_ns: int = 0
    """time with at least one step on the GPU"""
    cut_ns: int = 0
    """of it, the part of the step that was on the GPU when the clock stopped"""
    tokens: int = 0
    """tokens computed, recomputed ones included"""
    recomputed_tokens: int = 0
    """tokens whose KV had been computed before and was lost to a preemption"""
    wasted_rows: int = 0
    """rows of requests that had ended: their end came to light one step late, or a static batch kept their slot"""
    cached_tokens: int = 0
    """tokens that were not computed because their KV was cached; a request counts each time it is admitted"""
    loaded_tokens: int = 0
    """of these, loaded from the host's memory"""
    swapped_blocks: int = 0
    """KV blocks copied to or from the host by preemptions"""
    swap_refused: int = 0
    """preemptions that had to recompute because the host pool was full"""
    aborted_tokens: int = 0
    """tokens computed for requests whose clients gave up, rows under way included; recomputed ones count once"""
    padded_tokens: int = 0
    preemptions: int = 0
    running_ns: int = 0
    """integral of requests that run; who has ended and keeps the slot in a static batch does not"""
    waiting_ns: int = 0
    """integral of requests that wait: new and preempted ones, those in the host's memory, those whose KV is to come"""
    kv_block_ns: int = 0
    """integral of KV blocks held"""
    running_peak: int = 0
    """most of those that `running_ns` counts, once a step was formed"""
    waiting_peak: int = 0
    """most of those that `waiting_ns` counts, when one had joined or once a step was formed"""
    kv_blocks_peak: int = 0
    """most of those that `kv_block_ns` counts, once a step was formed"""
    requests: int = 0
    """requests that were sent here"""
    end_ns: int = 0
    """end of the last step"""
    outside: dict[str, int] = field(default_factory=dict)
    """steps beyond the measured box of the cost model, by the axis they left it on"""


@dataclass
class LinkUsage:
    """What one link between replicas did."""

    name: str
    transfers: int = 0
    bytes: int = 0
    busy_ns: int = 0
    queued_ns: int = 0
    """sum over transfers of the time before the link took them up"""


@dataclass(frozen=True)
class StepLog:
    """Every step of every replica, kept only when asked for. int64[steps] each; times in ns.

    running, waiting and kv_blocks are those once the step was formed: with asynchronous scheduling that is before the
    step ahead of it ended.
    """

    replica: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    decode_requests: np.ndarray
    prefill_tokens: np.ndarray
    running: np.ndarray
    """requests that hold a slot, those of a static batch that have ended included"""
    waiting: np.ndarray
    """requests that wait, as in ReplicaUsage"""
    kv_blocks: np.ndarray
    """KV blocks held, those that the step has taken included"""
