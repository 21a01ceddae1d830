"""Copying KV blocks between a GPU and its host: how long it takes, and how many blocks the host holds."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.errors import InvariantError


@dataclass(frozen=True)
class HostLink:
    """One GPU's link to its host; GPUs of a replica copy their shares at the same time.

    per_block_ns : copies one by one, each at this cost (vLLM V0: one per block, layer and K or V, bound by launches);
    0: merged copies at `bytes_per_s`. Sources and typical values: docs/engine_semantics.md, swap.
    """

    block_bytes: int
    """of one KV block on one GPU"""
    bytes_per_s: float
    per_block_ns: int = 0

    def copy_ns(self, blocks: int) -> int:
        """Nanoseconds to copy this many blocks, one way."""
        if self.per_block_ns:
            return blocks * self.per_block_ns
        return round(blocks * self.block_bytes / self.bytes_per_s * 1e9)


class HostPool:
    """Counts the host blocks that swapped requests hold."""

    def __init__(self, blocks: int):
        self.free_blocks = blocks

    def take(self, blocks: int) -> bool:
        """Take this many, or none at all (False)."""
        if blocks > self.free_blocks:
            return False
        self.free_blocks -= blocks
        return True

    def release(self, blocks: int) -> None:
        """Give back."""
        if blocks < 0:
            raise InvariantError(f"host pool: {blocks} blocks given back")
        self.free_blocks += blocks
