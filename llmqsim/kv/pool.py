"""KvPool: the paged KV cache of one replica, as numbers of blocks. Every verb is all or nothing."""

from __future__ import annotations

from llmqsim.errors import InvariantError

UNLIMITED_BLOCKS = 1 << 60
"""Blocks of a pool that never binds: a step-cost model of one's own without a KV pool."""


class KvPool:
    """Counts blocks; knows nobody. `usable_blocks` leaves out the null block that vLLM keeps for itself."""

    def __init__(self, blocks: int | None):
        self.usable_blocks = UNLIMITED_BLOCKS if blocks is None else blocks - 1
        self.free_blocks = self.usable_blocks

    @property
    def held_blocks(self) -> int:
        """Blocks that requests hold now."""
        return self.usable_blocks - self.free_blocks

    def take(self, blocks: int) -> bool:
        """Take this many blocks, or none at all (False) when fewer are free."""
        if blocks > self.free_blocks:
            return False
        self.free_blocks -= blocks
        return True

    def release(self, blocks: int) -> None:
        """Give blocks back."""
        self.free_blocks += blocks
        if self.free_blocks > self.usable_blocks:
            raise InvariantError(f"KV pool: {self.free_blocks} blocks free of {self.usable_blocks}")
