"""What a run of compiled replicas leaves behind, as records of the rest of the package."""

from __future__ import annotations

import numpy as np

from llmqsim.cost.kernels import AXES
from llmqsim.engine.compiled.world.books import LIMB, Usage
from llmqsim.records import GAP_BINS, GapHistogram, ReplicaUsage

INTEGRALS = ("busy_ns", "running_ns", "waiting_ns", "kv_block_ns")
"""fields of Usage that may be larger than a word"""


def usage(done: Usage) -> ReplicaUsage:
    """What one replica did."""
    counts = {name: getattr(done, name) for name in Usage.dtype.names or () if name not in (*INTEGRALS, "outside")}
    outside = dict(zip(AXES, done.outside, strict=False))
    return ReplicaUsage(
        **counts,
        **{name: getattr(done, name).value for name in INTEGRALS},
        outside={axis: count for axis, count in outside.items() if count},
    )


def gaps(counts: np.ndarray, sums: np.ndarray) -> GapHistogram:
    """Gaps between tokens. counts : int64[classes x bins]; sums : int64[classes x 3], two words of the sum, the largest."""
    classes = len(sums) // 3
    histogram = GapHistogram(classes)
    histogram.counts[:] = counts.reshape(classes, GAP_BINS)
    words = sums.reshape(classes, 3).tolist()
    histogram.sum_ns = [high * LIMB + low for high, low, _ in words]
    histogram.max_ns = [largest for _, _, largest in words]
    return histogram
