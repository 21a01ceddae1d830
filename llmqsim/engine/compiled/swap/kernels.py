"""Preemption by swap: blocks go to the host's memory and come back. What engine/swap.py does, in arrays.

R_SWAPS lists the slots whose blocks are there, by arrival. Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.kernels import release, slot_of, take
from llmqsim.engine.compiled.columns import ARRIVAL, WAIT_PREEMPTED
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.jit import kernel
from llmqsim.kv.kernels import copy_ns


@kernel
def swap_out(table, arena, base, step, slot, blocks, held):
    """Move a victim, already out of the running list, with its blocks to the host; False: it has no room.

    held : as for `release`.
    """
    if blocks > arena[base + R_HOST_FREE]:
        arena[base + U_SWAP_REFUSED] += 1
        return False
    at = slot_of(arena, base, slot)
    arena[base + R_HOST_FREE] -= blocks
    arena[base + U_SWAPPED_BLOCKS] += blocks
    arena[step + T_COPIED] += blocks
    arena[at + S_SWAPPED_BLOCKS] = arena[at + S_HOLD] = blocks
    arena[at + S_STAGE] = SWAPPED
    release(arena, base, slot, held, arena[at + S_COMPUTED] // arena[G_BLOCK_SIZE], False)
    row = arena[at + S_ROW]
    swaps, place = arena[base + R_SWAPS], arena[base + R_SWAPPED]
    while place > 0:
        other = arena[slot_of(arena, base, arena[swaps + place - 1]) + S_ROW]
        if table[ARRIVAL, other] < table[ARRIVAL, row] or (table[ARRIVAL, other] == table[ARRIVAL, row] and other < row):
            break
        arena[swaps + place] = arena[swaps + place - 1]
        place -= 1
    arena[swaps + place] = slot
    arena[base + R_SWAPPED] += 1
    return True


@kernel
def swap_place(arena, base, slot):
    """Where a slot stands in the list."""
    place = 0
    while arena[arena[base + R_SWAPS] + place] != slot:
        place += 1
    return place


@kernel
def leave_host(table, arena, base, place, now):
    """The slot at `place` of the list gives its host blocks back, its wait is settled; returns (slot, blocks)."""
    swaps = arena[base + R_SWAPS]
    slot = arena[swaps + place]
    at = slot_of(arena, base, slot)
    blocks = arena[at + S_SWAPPED_BLOCKS]
    arena[at + S_SWAPPED_BLOCKS] = 0
    arena[base + R_HOST_FREE] += blocks
    table[WAIT_PREEMPTED, arena[at + S_ROW]] += now - arena[at + S_PREEMPTED_NS]
    arena[base + R_SWAPPED] -= 1
    for later in range(place, arena[base + R_SWAPPED]):
        arena[swaps + later] = arena[swaps + later + 1]
    return slot, blocks


@kernel
def swap_in(table, arena, base, step, place, now):
    """Bring the blocks of the slot at `place` of the list back; returns the slot, which may run again."""
    slot, blocks = leave_host(table, arena, base, place, now)
    at = slot_of(arena, base, slot)
    take(arena, base, blocks)
    arena[base + U_SWAPPED_BLOCKS] += blocks
    arena[step + T_COPIED] += blocks
    arena[at + S_HELD] = blocks
    arena[at + S_HELD_SINCE] = arena[base + R_ADMISSIONS]
    arena[at + S_WAS_SWAPPED] = 1
    return slot


@kernel
def may_return(arena, base, slot, running, free, budget):
    """Are a slot, a token and the blocks there for a swapped request, with so many running, blocks free, tokens left?"""
    if rules.has_place(running, arena[G_MAX_NUM_SEQS], budget) != rules.ADMITTED:
        return False
    blocks = arena[slot_of(arena, base, slot) + S_SWAPPED_BLOCKS]
    return rules.may_return(blocks, free, arena[G_WATERMARK], running)


@kernel
def first_may_return(arena, base, budget):
    """Would the first of the swapped requests come back now?"""
    slot = arena[arena[base + R_SWAPS]]
    return may_return(arena, base, slot, arena[base + R_RUNNING], arena[base + R_FREE_BLOCKS], budget)


@kernel
def with_copies(arena, costs, step, duration):
    """A step's time, ns, with the copies that it waits for."""
    copied = arena[step + T_COPIED] + arena[step + T_LOADED]
    if copied == 0:
        return duration
    return duration + copy_ns(copied, arena[G_COPY_NS], arena[G_BLOCK_BYTES], costs[arena[G_LINK]])
