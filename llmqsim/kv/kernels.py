"""Time of a copy between a GPU and its host: the rule that both engines call. Plain numbers."""

from __future__ import annotations

from llmqsim.jit import kernel


@kernel
def copy_ns(blocks, per_block_ns, block_bytes, bytes_per_s):
    """Nanoseconds to copy this many blocks one way: one by one at per_block_ns each, or (0) merged, at the bandwidth."""
    if per_block_ns > 0:
        return blocks * per_block_ns
    return round(blocks * block_bytes / bytes_per_s * 1e9)
