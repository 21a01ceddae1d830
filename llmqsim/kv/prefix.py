"""PrefixPool: a KV pool that knows its blocks one by one, so that requests with a common prefix share them.

Rules of vLLM V1's block pool (docs/engine_semantics.md):

- only full blocks have a hash, chained on what comes before; shareable as soon as a step that computes them is formed;
- generated blocks are hashed, too: a preempted request finds its own again if nobody took them meanwhile;
- a hit is the longest run of leading cached blocks, at most all tokens but one, so that a step has work to do;
- a freed block keeps its hash and stays hittable until it is taken from the head of the free list; a request's blocks
  are freed tail first, so that the heads of prompts live longest.

    free list   head -> [ oldest free ......... newest free ] <- tail
                taken from here                     freed to here

A block that several running requests hold is read by each of them in every step, and comes from memory once: the others
find it in the GPU's cache, if their requests were admitted close to one another. `repeated_blocks` counts those others.

With a host tier, a block that loses its place on the GPU goes to the host's memory (LRU) and can be loaded back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice

from llmqsim.kv.pool import Holder, KvPool

PRIVATE_SHIFT = 24
"""a private block's hash is (row + 1) << 24 | position; a row has fewer than 2**24 blocks"""


NEAR_ADMISSIONS = 64
"""requests admitted within so many of one another read a common block at about the same time in every step, while it is
in the GPU's cache. Not identified: measured runs tell 10 (a common system prompt) from 100 (equal prompts, one round of
the client later), no more; docs/fidelity.md"""


def private_hash(row: int, position: int) -> int:
    """Hash of a block whose content nobody else has: negative, so that it never meets a shared one."""
    return -(((row + 1) << PRIVATE_SHIFT) | position)


class PrefixPool(KvPool):
    """The same verbs as KvPool, with hits.

    prefix_of : row to the hashes of its leading blocks that others may share (requests.PrefixTable.row).
    unhashed_first : blocks without a hash are reused first (vLLM 0.24 and later). host_blocks : size of the host tier.
    """

    def __init__(
        self,
        blocks: int,
        block_size: int,
        prefix_of: Callable[[int], list[int]],
        unhashed_first: bool = False,
        host_blocks: int = 0,
    ):
        super().__init__(blocks, block_size)
        self._prefix_of = prefix_of
        self._unhashed_first = unhashed_first
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(self.usable_blocks))
        self._references = [0] * self.usable_blocks
        self._repeats = [0] * self.usable_blocks
        self._held_since = [0] * self.usable_blocks
        self._admissions = 0
        self._hash_of: dict[int, int] = {}
        self._blocks_of: dict[int, dict[int, None]] = {}
        self._host: OrderedDict[int, None] = OrderedDict()
        self._host_blocks = host_blocks

    def hit_tokens(self, holder: Holder) -> tuple[int, int]:
        """Leading tokens whose KV is on the GPU or the host, and the free blocks that taking them would use up."""
        hits, free = 0, 0
        for key in self._leading(holder):
            block = self._find(key)
            free += block is None or self._references[block] == 0
            hits += 1
        return hits * self.block_size, free

    def take_hits(self, holder: Holder) -> tuple[int, int]:
        """Hold the hit blocks; those of the host tier get a GPU block and are loaded into it."""
        self._admissions += 1
        keys = list(self._leading(holder))
        on_gpu = [self._find(key) for key in keys]
        for block in on_gpu:  # first, so that loading does not evict what was just hit
            if block is not None:
                self._touch(block)
        loaded = 0
        for key, block in zip(keys, on_gpu, strict=True):
            if block is None:
                block = self._pop()
                self._host.pop(key, None)
                self._put_hash(block, key)
                loaded += 1
            holder.block_ids.append(block)
        holder.kv_blocks = len(holder.block_ids)
        return len(keys) * self.block_size, loaded * self.block_size

    def take(self, holder: Holder, blocks: int) -> bool:
        """Give blocks from the head of the free list; what was cached in them is gone."""
        if blocks > self.free_blocks:
            return False
        if blocks:
            holder.block_ids.extend([self._pop() for _ in range(blocks)])
            holder.kv_blocks = len(holder.block_ids)
        return True

    def computed(self, holder: Holder) -> None:
        """Hash the blocks that are full once the formed step has run."""
        position = holder.hashed_blocks
        full = holder.computed_tokens // self.block_size
        while position < full:
            self._put_hash(holder.block_ids[position], self._key(holder, position))
            position += 1
        holder.hashed_blocks = position

    def forget(self, holder: Holder, tokens: int) -> None:
        """Drop the hashes of blocks beyond `tokens`: they will not be computed."""
        kept = tokens // self.block_size
        for block in holder.block_ids[kept : holder.hashed_blocks]:
            self._drop_hash(block)
        holder.hashed_blocks = min(holder.hashed_blocks, kept)

    def release(self, holder: Holder) -> None:
        """Give back tail first; who has no other holder joins the free list with its hash."""
        for block in reversed(holder.block_ids):
            self._references[block] -= 1
            if self._repeats[block] and self._repeats[block] >= self._references[block]:
                self._repeats[block] -= 1
                self.repeated_blocks -= 1
            if self._references[block] == 0:
                self._free[block] = None
                self.free_blocks += 1
                if self._unhashed_first and block not in self._hash_of:
                    self._free.move_to_end(block, last=False)
        holder.block_ids.clear()
        holder.kv_blocks = holder.hashed_blocks = 0

    def warm(self, prompts: Iterable[list[int]]) -> None:
        """Fill the cache before the run as if prompts with these keys had been served one after the other, as far as it
        goes: each is freed tail first, so that the heads live longest.
        """
        room = self.usable_blocks
        for keys in prompts:
            new = list(islice((key for key in keys if key not in self._blocks_of), room))
            blocks = [self._pop() for _ in new]
            for block, key in zip(blocks, new, strict=True):
                self._put_hash(block, key)
            for block in reversed(blocks):
                self._references[block] = 0
                self._free[block] = None
                self.free_blocks += 1
            room -= len(new)
            if not room:
                return

    def _leading(self, holder: Holder):
        """Hashes of the leading blocks that are cached, in order."""
        for position in range((holder.known_tokens - 1) // self.block_size):
            key = self._key(holder, position)
            if key not in self._blocks_of and key not in self._host:
                return
            yield key

    def _key(self, holder: Holder, position: int) -> int:
        if holder.prefix is None:
            holder.prefix = self._prefix_of(holder.row)
        return holder.prefix[position] if position < len(holder.prefix) else private_hash(holder.row, position)

    def _find(self, key: int) -> int | None:
        blocks = self._blocks_of.get(key)
        return next(iter(blocks)) if blocks else None

    def _touch(self, block: int) -> None:
        if self._references[block] == 0:
            del self._free[block]
            self.free_blocks -= 1
        elif self._admissions - self._held_since[block] <= NEAR_ADMISSIONS:
            self._repeats[block] += 1
            self.repeated_blocks += 1
        self._references[block] += 1
        self._held_since[block] = self._admissions

    def _pop(self) -> int:
        block, _ = self._free.popitem(last=False)
        self.free_blocks -= 1
        self._references[block] = 1
        self._held_since[block] = self._admissions
        key = self._drop_hash(block)
        if key is not None and self._host_blocks and key not in self._blocks_of:
            self._host[key] = None
            self._host.move_to_end(key)
            if len(self._host) > self._host_blocks:
                self._host.popitem(last=False)
        return block

    def _put_hash(self, block: int, key: int) -> None:
        self._hash_of[block] = key
        self._blocks_of.setdefault(key, {})[block] = None

    def _drop_hash(self, block: int) -> int | None:
        key = self._hash_of.pop(block, None)
        if key is not None:
            del self._blocks_of[key][block]
            if not self._blocks_of[key]:
                del self._blocks_of[key]
        return key
