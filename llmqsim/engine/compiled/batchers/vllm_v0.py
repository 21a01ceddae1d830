"""vLLM V0's steps in both modes: policies/batching/vllm_v0.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import VllmV0, made_of
from llmqsim.engine.compiled.batchers.rows import by_rows
from llmqsim.engine.compiled.columns import ARRIVAL
from llmqsim.engine.compiled.step.entry import admit_waiting
from llmqsim.engine.compiled.step.running import bring_back, grow, snapshot, snapshot_decodes_first
from llmqsim.engine.compiled.world.limits import NO_LIMIT
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.jit import kernel


@kernel
def came_before(table, arena, replica, slot, other):
    """By arrival, then row."""
    row, other_row = request_at(arena, replica.slots, slot).row, request_at(arena, replica.slots, other).row
    if table[ARRIVAL, row] != table[ARRIVAL, other_row]:
        return table[ARRIVAL, row] < table[ARRIVAL, other_row]
    return row < other_row


@kernel
def sort_by_arrival(table, arena, replica, first, end):
    """Sort slots at these places of the arena; they are nearly sorted."""
    for place in range(first + 1, end):
        slot, hole = arena[place], place
        while hole > first and came_before(table, arena, replica, slot, arena[hole - 1]):
            arena[hole] = arena[hole - 1]
            hole -= 1
        arena[hole] = slot


@kernel
def draft(batcher, table, run, arena, costs, params, replica, step, now):
    """Chunked: all in one step. Else a step of whole prompts if any can enter, or of decodes."""
    chunked, scratch = run.chunked != 0, run.scratch
    swapped = replica.swapped > 0
    if not chunked and not swapped and admit_waiting(batcher, table, run, arena, replica, step, True, False, now):
        return
    if chunked:
        count, decodes = snapshot_decodes_first(run, arena, replica)
        sort_by_arrival(table, arena, replica, scratch, scratch + decodes)
        sort_by_arrival(table, arena, replica, scratch + decodes, scratch + count)
    else:
        count = snapshot(run, arena, replica)
        sort_by_arrival(table, arena, replica, scratch, scratch + count)
    for place in range(scratch, scratch + count):
        grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, batcher.spare_blocks, now)
    if not chunked:
        if step.preempted == 0:
            bring_back(batcher, table, run, arena, replica, step, now)
    elif not swapped or (step.preempted == 0 and bring_back(batcher, table, run, arena, replica, step, now)):
        admit_waiting(batcher, table, run, arena, replica, step, True, False, now)


made_of(VllmV0, by_rows(draft))
