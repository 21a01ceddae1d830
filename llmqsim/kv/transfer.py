"""Copying KV blocks: between a GPU and its host, and between replicas."""

from __future__ import annotations

from dataclasses import dataclass

from llmqsim.errors import InvariantError
from llmqsim.kv import kernels


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
        return kernels.copy_ns(blocks, self.per_block_ns, self.block_bytes, float(self.bytes_per_s))


@dataclass(frozen=True)
class KvLink:
    """What carries KV between replicas: each GPU's own, unless `shared`.

    Time of a transfer: latency_ns + max(bytes / bandwidth, fragments x per_fragment_ns). bytes_per_us : of one GPU (of
    the whole link if shared); whole bytes per microsecond, so that all arithmetic is in integers.
    """

    name: str
    bytes_per_us: int
    latency_ns: int = 0
    per_fragment_ns: int = 0
    shared: bool = False
    """one link for all replicas, or one at each replica's end?"""
    source: str = ""


@dataclass(frozen=True)
class KvLane:
    """KV between replicas of two pools, as the GPU sees it that has the most to move.

    block_bytes : of a block, all GPUs together; lane_bytes, fragments : of a block on that GPU. layers : of the model.
    """

    block_bytes: int
    lane_bytes: int
    fragments: int
    layers: int


class HostPool:
    """Counts the host blocks that swapped requests hold."""

    def __init__(self, blocks: int):
        self.blocks = self.free_blocks = blocks

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
