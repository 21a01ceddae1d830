"""What a run of compiled replicas leaves in its arena, as records. layout : the module of its words, U_... for usage."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from llmqsim.cost.kernels import AXES
from llmqsim.engine.compiled.layout import LIMB
from llmqsim.records import GAP_BINS, GapHistogram, ReplicaUsage

COUNTS = {
    "steps": "U_STEPS",
    "cut_ns": "U_CUT",
    "tokens": "U_TOKENS",
    "recomputed_tokens": "U_RECOMPUTED",
    "wasted_rows": "U_WASTED",
    "aborted_tokens": "U_ABORTED",
    "cached_tokens": "U_CACHED",
    "loaded_tokens": "U_LOADED",
    "padded_tokens": "U_PADDED",
    "preemptions": "U_PREEMPTIONS",
    "swapped_blocks": "U_SWAPPED_BLOCKS",
    "swap_refused": "U_SWAP_REFUSED",
    "running_peak": "U_RUNNING_PEAK",
    "waiting_peak": "U_WAITING_PEAK",
    "kv_blocks_peak": "U_BLOCKS_PEAK",
    "requests": "U_REQUESTS",
    "end_ns": "U_END_NS",
}
"""field of ReplicaUsage -> its word, where a layout has it"""
INTEGRALS = {
    "busy_ns": "U_BUSY",
    "running_ns": "U_RUNNING",
    "waiting_ns": "U_WAITING",
    "kv_block_ns": "U_BLOCKS",
}


def usage(words: np.ndarray, layout: ModuleType) -> ReplicaUsage:
    """What one replica did. words : int64[REPLICA], its scalars."""
    values = words.tolist()
    outside = dict(zip(AXES, values[layout.U_OUTSIDE :], strict=False))
    return ReplicaUsage(
        **{name: values[getattr(layout, word)] for name, word in COUNTS.items() if hasattr(layout, word)},
        **{name: _integral(values, getattr(layout, word)) for name, word in INTEGRALS.items()},
        outside={axis: count for axis, count in outside.items() if count},
    )


def _integral(values: list[int], word: int) -> int:
    return values[word] * LIMB + values[word + 1]


def gaps(counts: np.ndarray, sums: np.ndarray) -> GapHistogram:
    """Gaps between tokens. counts : int64[classes x bins]; sums : int64[classes x 3], two words of the sum, the largest."""
    classes = len(sums) // 3
    histogram = GapHistogram(classes)
    histogram.counts[:] = counts.reshape(classes, GAP_BINS)
    words = sums.reshape(classes, 3).tolist()
    histogram.sum_ns = [high * LIMB + low for high, low, _ in words]
    histogram.max_ns = [largest for _, _, largest in words]
    return histogram
