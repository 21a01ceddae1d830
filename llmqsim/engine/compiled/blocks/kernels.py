"""Blocks of a replica's KV pool: counted, and, with prefix caching, in the order in which free ones are used again.

Where nobody shares a prefix, a cached block can be hit by one request alone: the one that computed it and was preempted.
So the free list of kv/prefix.py, first freed first used, is a queue of runs (owner, blocks): the leading full blocks of
one preempted request, or blocks that nobody will look for (owner GONE). A request's blocks are freed tail first, so that
what is left of its run is always the leading part. Arguments as in step/kernels.py.
"""

from __future__ import annotations

from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.jit import kernel


@kernel
def run_at(arena, base, place):
    """Where a run lies: owner, blocks."""
    return arena[base + R_RUNS] + 2 * place


@kernel
def slot_of(arena, base, slot):
    """Where a slot lies."""
    return arena[base + R_SLOTS] + slot * SLOT


@kernel
def take(arena, base, blocks):
    """Use free blocks; what was cached in them is gone."""
    arena[base + R_FREE_BLOCKS] -= blocks
    if arena[G_CACHING] == 0:
        return
    while blocks > 0:
        run = run_at(arena, base, arena[base + R_RUNS_HEAD])
        part = min(blocks, arena[run + 1])
        arena[run + 1] -= part
        blocks -= part
        if arena[run + 1] == 0:
            if arena[run] != GONE:
                arena[slot_of(arena, base, arena[run]) + S_RUN] = GONE
            arena[base + R_RUNS_HEAD] += 1


@kernel
def give(arena, base, blocks, owner):
    """Free blocks, to be used again after all that are free now. owner : slot that may look for them, or GONE."""
    arena[base + R_FREE_BLOCKS] += blocks
    if arena[G_CACHING] == 0 or blocks == 0:
        return
    last = arena[base + R_RUNS_END] - 1
    if owner == GONE and last >= arena[base + R_RUNS_HEAD] and arena[run_at(arena, base, last)] == GONE:
        arena[run_at(arena, base, last) + 1] += blocks
        return
    if last + 1 == RUNS_PER_SLOT * arena[G_SLOTS]:
        pack_runs(arena, base)
    place = arena[base + R_RUNS_END]
    arena[base + R_RUNS_END] += 1
    arena[run_at(arena, base, place)] = owner
    arena[run_at(arena, base, place) + 1] = blocks
    if owner != GONE:
        arena[slot_of(arena, base, owner) + S_RUN] = place


@kernel
def pack_runs(arena, base):
    """Move the runs to the front of their place; empty ones go, neighbours without an owner become one."""
    kept = 0
    for place in range(arena[base + R_RUNS_HEAD], arena[base + R_RUNS_END]):
        owner, blocks = arena[run_at(arena, base, place)], arena[run_at(arena, base, place) + 1]
        if blocks == 0:
            continue
        if owner == GONE and kept > 0 and arena[run_at(arena, base, kept - 1)] == GONE:
            arena[run_at(arena, base, kept - 1) + 1] += blocks
            continue
        arena[run_at(arena, base, kept)] = owner
        arena[run_at(arena, base, kept) + 1] = blocks
        if owner != GONE:
            arena[slot_of(arena, base, owner) + S_RUN] = kept
        kept += 1
    arena[base + R_RUNS_HEAD] = 0
    arena[base + R_RUNS_END] = kept


@kernel
def hit_blocks(arena, base, slot):
    """Leading blocks of a preempted request that are still cached."""
    if arena[G_CACHING] == 0 or slot < 0:
        return 0
    place = arena[slot_of(arena, base, slot) + S_RUN]
    return 0 if place == GONE else arena[run_at(arena, base, place) + 1]


@kernel
def take_hits(arena, base, slot):
    """A preempted request holds its cached blocks again; returns how many."""
    hits = hit_blocks(arena, base, slot)
    if hits > 0:
        at = slot_of(arena, base, slot)
        run = run_at(arena, base, arena[at + S_RUN])
        arena[run] = GONE
        arena[run + 1] = 0
        arena[at + S_RUN] = GONE
        arena[base + R_FREE_BLOCKS] -= hits
    return hits


@kernel
def disown(arena, base, slot):
    """A request has ended while it waited: nobody will look for its cached blocks."""
    if hit_blocks(arena, base, slot) > 0:
        at = slot_of(arena, base, slot)
        arena[run_at(arena, base, arena[at + S_RUN])] = GONE
        arena[at + S_RUN] = GONE
