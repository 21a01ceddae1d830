"""Preemption by swap: blocks go to the host's memory and come back. What engine/swap.py does, in arrays.

replica.swaps lists the slots whose blocks are there, by arrival. Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.pool import release, take
from llmqsim.engine.compiled.columns import ARRIVAL, WAIT_PREEMPTED
from llmqsim.engine.compiled.world.request import SWAPPED, request_at
from llmqsim.jit import kernel
from llmqsim.kv.kernels import copy_ns


@kernel
def swap_out(table, run, arena, replica, step, slot, blocks, held):
    """Move a victim, already out of the running list, with its blocks to the host; False: it has no room.

    held : as for `release`.
    """
    if blocks > replica.host_free:
        replica.usage.swap_refused += 1
        return False
    request = request_at(arena, replica.slots, slot)
    replica.host_free -= blocks
    replica.usage.swapped_blocks += blocks
    step.copied_blocks += blocks
    request.swapped_blocks = request.hold = blocks
    request.stage = SWAPPED
    release(run, arena, replica, slot, held, request.computed_tokens // run.block_size, False)
    row = request.row
    swaps, place = replica.swaps, replica.swapped
    while place > 0:
        other = request_at(arena, replica.slots, arena[swaps + place - 1]).row
        if table[ARRIVAL, other] < table[ARRIVAL, row] or (
            table[ARRIVAL, other] == table[ARRIVAL, row] and other < row
        ):
            break
        arena[swaps + place] = arena[swaps + place - 1]
        place -= 1
    arena[swaps + place] = slot
    replica.swapped += 1
    return True


@kernel
def swap_place(arena, replica, slot):
    """Where a slot stands in the list."""
    place = 0
    while arena[replica.swaps + place] != slot:
        place += 1
    return place


@kernel
def leave_host(table, arena, replica, place, now):
    """The slot at `place` of the list gives its host blocks back, its wait is settled; returns (slot, blocks)."""
    swaps = replica.swaps
    slot = arena[swaps + place]
    request = request_at(arena, replica.slots, slot)
    blocks = request.swapped_blocks
    request.swapped_blocks = 0
    replica.host_free += blocks
    table[WAIT_PREEMPTED, request.row] += now - request.preempted_ns
    replica.swapped -= 1
    for later in range(place, replica.swapped):
        arena[swaps + later] = arena[swaps + later + 1]
    return slot, blocks


@kernel
def swap_in(table, run, arena, replica, step, place, now):
    """Bring the blocks of the slot at `place` of the list back; returns the slot, which may run again."""
    slot, blocks = leave_host(table, arena, replica, place, now)
    request = request_at(arena, replica.slots, slot)
    take(run, arena, replica, blocks)
    replica.usage.swapped_blocks += blocks
    step.copied_blocks += blocks
    request.held = blocks
    request.held_since = replica.admissions
    request.was_swapped = 1
    return slot


@kernel
def may_return(run, arena, replica, slot, running, free, budget):
    """Are a slot, a token and the blocks there for a swapped request, with so many running, blocks free, tokens left?"""
    if rules.has_place(running, run.max_num_seqs, budget) != rules.ADMITTED:
        return False
    blocks = request_at(arena, replica.slots, slot).swapped_blocks
    return rules.may_return(blocks, free, run.watermark, running)


@kernel
def first_may_return(run, arena, replica, budget):
    """Would the first of the swapped requests come back now?"""
    slot = arena[replica.swaps]
    return may_return(run, arena, replica, slot, replica.running, replica.free_blocks, budget)


@kernel
def with_copies(run, costs, step, duration):
    """A step's time, ns, with the copies that it waits for."""
    copied = step.copied_blocks + step.loaded_blocks
    if copied == 0:
        return duration
    return duration + copy_ns(copied, run.copy_ns, run.block_bytes, costs[run.link])
