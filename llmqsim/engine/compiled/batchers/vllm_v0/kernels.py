"""vLLM V0's steps in both modes: policies/batching/vllm_v0.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import VllmV0, made_of
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows
from llmqsim.engine.compiled.columns import ARRIVAL
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.step.entry.kernels import admit_waiting
from llmqsim.engine.compiled.step.rows.kernels import slot_at
from llmqsim.engine.compiled.step.running.kernels import bring_back, grow, snapshot, snapshot_decodes_first
from llmqsim.jit import kernel


@kernel
def came_before(table, arena, base, slot, other):
    """By arrival, then row."""
    row, other_row = arena[slot_at(arena, base, slot) + S_ROW], arena[slot_at(arena, base, other) + S_ROW]
    if table[ARRIVAL, row] != table[ARRIVAL, other_row]:
        return table[ARRIVAL, row] < table[ARRIVAL, other_row]
    return row < other_row


@kernel
def sort_by_arrival(table, arena, base, first, end):
    """Sort slots at these places of the arena; they are nearly sorted."""
    for place in range(first + 1, end):
        slot, hole = arena[place], place
        while hole > first and came_before(table, arena, base, slot, arena[hole - 1]):
            arena[hole] = arena[hole - 1]
            hole -= 1
        arena[hole] = slot


@kernel
def draft(batcher, table, arena, costs, params, base, step, now):
    """Chunked: all in one step. Else a step of whole prompts if any can enter, or of decodes."""
    chunked, scratch = arena[G_CHUNKED] != 0, arena[G_SCRATCH]
    swapped = arena[base + R_SWAPPED] > 0
    if not chunked and not swapped and admit_waiting(batcher, table, arena, base, step, True, False, now):
        return
    if chunked:
        count, decodes = snapshot_decodes_first(arena, base)
        sort_by_arrival(table, arena, base, scratch, scratch + decodes)
        sort_by_arrival(table, arena, base, scratch + decodes, scratch + count)
    else:
        count = snapshot(arena, base)
        sort_by_arrival(table, arena, base, scratch, scratch + count)
    for place in range(scratch, scratch + count):
        grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, batcher.spare_blocks, now)
    if not chunked:
        if arena[step + T_PREEMPTED] == 0:
            bring_back(batcher, table, arena, base, step, now)
    elif not swapped or (arena[step + T_PREEMPTED] == 0 and bring_back(batcher, table, arena, base, step, now)):
        admit_waiting(batcher, table, arena, base, step, True, False, now)


made_of(VllmV0, by_rows(draft))
