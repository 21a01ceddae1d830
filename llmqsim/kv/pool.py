"""KvPool: the paged KV cache of one replica, as numbers of blocks. Every verb is all or nothing.

This pool only counts, which is all that matters without prefix caching. `kv/prefix.py` has the pool that knows its
blocks one by one; both answer the same verbs, so that the engine never asks which one it has.
"""

from __future__ import annotations

from typing import Protocol

from llmqsim.errors import InvariantError

UNLIMITED_BLOCKS = 1 << 60
"""Blocks of a pool that never binds: a step-cost model of one's own without a KV pool."""


class Holder(Protocol):
    """Who holds blocks: a sequence in flight."""

    row: int
    kv_blocks: int
    """blocks that it holds; written by the pool alone"""
    block_ids: list[int]
    """which ones, in order of position; empty in a pool that only counts"""
    hashed_blocks: int
    """of these, leading ones that have a hash"""
    prefix: list[int] | None
    """hashes of its leading blocks that others may share; None: not looked up yet"""
    computed_tokens: int
    known_tokens: int
    prompt_tokens: int


class KvPool:
    """Counts blocks. `usable_blocks` leaves out the null block that vLLM keeps for itself."""

    def __init__(self, blocks: int | None, block_size: int):
        self.usable_blocks = UNLIMITED_BLOCKS if blocks is None else blocks - 1
        self.free_blocks = self.usable_blocks
        self.block_size = block_size
        self.repeated_blocks = 0
        """blocks that running requests read once more than memory has to deliver them: kv/prefix.py"""

    @property
    def held_blocks(self) -> int:
        """Blocks that requests hold now."""
        return self.usable_blocks - self.free_blocks

    def hit_tokens(self, holder: Holder) -> tuple[int, int]:
        """Leading tokens of a newcomer whose KV is here, and the free blocks that taking them would use up."""
        return 0, 0

    def take_hits(self, holder: Holder) -> tuple[int, int]:
        """Let a newcomer hold the blocks of its hits: (tokens, of which loaded from the host)."""
        return 0, 0

    def take(self, holder: Holder, blocks: int) -> bool:
        """Give this many blocks more, or none at all (False) when fewer are free."""
        if blocks > self.free_blocks:
            return False
        self.free_blocks -= blocks
        holder.kv_blocks += blocks
        return True

    def computed(self, holder: Holder) -> None:
        """A formed step will have computed up to `computed_tokens`: full blocks can be shared from now."""

    def forget(self, holder: Holder, tokens: int) -> None:
        """The step that was to compute what lies beyond `tokens` is not to be: its blocks hold nothing."""

    def release(self, holder: Holder) -> None:
        """Take back all blocks of a holder."""
        self.free_blocks += holder.kv_blocks
        holder.kv_blocks = 0
        if self.free_blocks > self.usable_blocks:
            raise InvariantError(f"KV pool: {self.free_blocks} blocks free of {self.usable_blocks}")
