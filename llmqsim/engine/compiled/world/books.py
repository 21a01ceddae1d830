"""Whole numbers that outgrow a word, and what is written down of a replica and of gaps between tokens."""

# Part of machine code: kernels read and write these fields.
from __future__ import annotations

from llmqsim.engine.compiled.world.record import Four, Record, placed

LIMB = 1 << 60
"""sums are kept as high x LIMB + low, so that they can't overflow"""


class Whole(Record):
    """A sum that may be larger than a word."""

    __slots__ = ()
    high: int
    low: int

    @property
    def value(self) -> int:
        """The number. Not for kernels, which have no numbers so large."""
        return self.high * LIMB + self.low


class Usage(Record):
    """What a replica did: records.ReplicaUsage."""

    __slots__ = ()
    steps: int  # that were committed
    tokens: int
    recomputed_tokens: int
    wasted_rows: int
    cached_tokens: int
    loaded_tokens: int
    padded_tokens: int
    preemptions: int
    swapped_blocks: int
    swap_refused: int
    running_peak: int
    waiting_peak: int
    kv_blocks_peak: int
    requests: int  # that reached it
    end_ns: int  # of its last step
    cut_ns: int  # of a step that the end of the run cut off
    aborted_tokens: int
    outside: Four  # steps outside of what the cost model was measured on, as cost.kernels.AXES
    busy_ns: Whole
    running_ns: Whole
    waiting_ns: Whole
    kv_block_ns: Whole


class GapSum(Record):
    """Gaps between tokens of a class, ns."""

    __slots__ = ()
    sum_ns: Whole
    largest_ns: int


whole_at = placed(Whole)
