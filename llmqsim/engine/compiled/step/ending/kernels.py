"""A step ends: tokens are delivered, requests leave, and what was used is booked.

Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.cost.kernels import outside_box, padded_tokens
from llmqsim.engine.compiled.batchers import close_steps
from llmqsim.engine.compiled.blocks.kernels import disown, release
from llmqsim.engine.compiled.books.kernels import count_gap, pass_time, tally
from llmqsim.engine.compiled.columns import (
    ARRIVAL,
    CACHED,
    COMPLETED,
    FINISH,
    FIRST_TOKEN,
    OUTCOME,
    WAIT_PREEMPTED,
    WAIT_STEP,
)
from llmqsim.engine.compiled.layout import *  # names of words, nothing else
from llmqsim.engine.compiled.orders import left
from llmqsim.engine.compiled.queue.kernels import entry_at
from llmqsim.engine.compiled.step.forming.kernels import start
from llmqsim.engine.compiled.step.rows.kernels import (
    drop_oldest,
    held_blocks,
    leave_order,
    slot_at,
    step_at,
    write_marks,
)
from llmqsim.engine.compiled.swap.kernels import leave_host, swap_place
from llmqsim.jit import kernel


@kernel
def commit(batcher, table, arena, params, base):
    """The oldest step ends: its tokens are delivered, and who has all of them leaves and returns his blocks."""
    step = step_at(arena, base, 0)
    now = arena[step + T_END_NS]
    tally(arena, base, now)
    drop_oldest(arena, base)
    ended = 0
    for place in range(arena[step + T_SAMPLED]):
        slot = arena[step + STEP + place]
        if slot < 0:
            arena[base + U_WASTED] += slot == GONE
            continue
        at = slot_at(arena, base, slot)
        if arena[at + S_GENERATED] > 0:
            gap = now - arena[at + S_LAST_NS]
            count_gap(arena, arena[at + S_CLASS], gap, 1)
            arena[at + S_MAX_GAP_NS] = max(arena[at + S_MAX_GAP_NS], gap)
        else:
            table[FIRST_TOKEN, arena[at + S_ROW]] = now + arena[G_AFTER_NS]
        arena[at + S_LAST_NS] = now
        arena[at + S_GENERATED] += 1
        if arena[at + S_GENERATED] == arena[at + S_OUTPUT]:
            finish(batcher, table, arena, base, slot, now)
            ended += 1
    if ended > 0:
        close_ranks(arena, base)
        end_batch(arena, base)
    arena[base + R_LAST_COMMIT_NS] = now
    book_step(arena, params, base, step, now)
    if arena[base + R_STEPS] > 0 and arena[G_STAGES] == 1:
        start(arena, step_at(arena, base, 0), now)
    arena[base + R_FORM_NS] = now


@kernel
def finish(batcher, table, arena, base, slot, now):
    """A request has all its tokens. Its slot is free at once; `close_ranks` takes it off the running list."""
    at = slot_at(arena, base, slot)
    row = arena[at + S_ROW]
    if arena[at + S_STAGE] == WAITING:  # preempted after its last token went under way
        table[WAIT_PREEMPTED, row] += now - arena[at + S_PREEMPTED_NS]
        step_out(batcher, table, arena, base, slot)
    elif arena[at + S_STAGE] == SWAPPED:
        leave_host(table, arena, base, swap_place(arena, base, slot), now)
    cross_out(arena, base, slot, GONE)
    leave(table, arena, base, slot, now)


@kernel
def step_out(batcher, table, arena, base, slot):
    """A preempted request leaves the queue from wherever it is."""
    disown(arena, base, slot)
    arena[base + R_PREEMPTED] -= 1
    if arena[G_SORTED] != 0:
        row = arena[slot_at(arena, base, slot) + S_ROW]
        arena[entry_at(arena, row) + Q_RANK] = NOT_IN_LINE
        left(batcher.order, table, arena, base, row, False)
        return
    stack, found = arena[base + R_STACK], False
    for place in range(arena[base + R_PREEMPTED]):
        found = found or arena[stack + place] == slot
        if found:
            arena[stack + place] = arena[stack + place + 1]


@kernel
def cross_out(arena, base, slot, mark):
    """Steps in flight have a row for nobody now. mark : GONE or ABORTED."""
    for ahead in range(arena[base + R_STEPS]):
        step = step_at(arena, base, ahead)
        for place in range(arena[step + T_SAMPLED]):
            if arena[step + STEP + place] == slot:
                arena[step + STEP + place] = mark


@kernel
def leave(table, arena, base, slot, now):
    """A request has all its tokens: its row is written, and its client will hear of it."""
    at = slot_at(arena, base, slot)
    row = arena[at + S_ROW]
    table[FINISH, row] = now + arena[G_AFTER_NS]
    table[OUTCOME, row] = COMPLETED
    arena[arena[G_OUTSTANDING] + arena[base + R_INDEX]] -= 1
    if arena[G_ANSWERS] > 0:
        arena[arena[G_ANSWERS] + arena[G_ANSWERED]] = row
        arena[G_ANSWERED] += 1
    depart(table, arena, base, slot)


@kernel
def depart(table, arena, base, slot):
    """A request that has ended returns its blocks and its slot, unless a batch keeps them until all of it has ended."""
    at = slot_at(arena, base, slot)
    write_marks(table, arena, at)
    arena[base + R_LEFT] += 1
    if arena[G_KEEPS_SLOTS] != 0 and arena[at + S_STAGE] == RUNNING:
        arena[at + S_STAGE] = KEPT
        arena[arena[base + R_KEPT] + arena[base + R_ENDED]] = slot
        arena[base + R_ENDED] += 1
    else:
        vacate(arena, base, slot)


@kernel
def vacate(arena, base, slot):
    """Blocks and slot of a request are free."""
    at = slot_at(arena, base, slot)
    if arena[at + S_STAGE] == RUNNING or arena[at + S_STAGE] == KEPT:
        release(arena, base, slot, held_blocks(arena, at), arena[at + S_COMPUTED] // arena[G_BLOCK_SIZE], False)
    arena[at + S_STAGE] = FREE
    arena[arena[base + R_FREE] + arena[base + R_FREE_SLOTS]] = slot
    arena[base + R_FREE_SLOTS] += 1


@kernel
def end_batch(arena, base):
    """Once all of a static batch have ended, their slots and blocks are free."""
    if arena[base + R_RUNNING] == 0:
        for place in range(arena[base + R_ENDED]):
            vacate(arena, base, arena[arena[base + R_KEPT] + place])
        arena[base + R_ENDED] = 0


@kernel
def abort(batcher, table, arena, base, row, now):
    """The client has given up: the request leaves at once with its blocks; its rows under way are wasted."""
    tally(arena, base, now)
    close_steps(batcher, arena, base)
    slot = arena[entry_at(arena, row) + Q_SLOT]
    if slot < 0:
        abandon(batcher, table, arena, base, row, now)
    else:
        at = slot_at(arena, base, slot)
        arena[base + U_ABORTED] += max(arena[at + S_HIGH_WATER], arena[at + S_COMPUTED]) - table[CACHED, row]
        if arena[at + S_STAGE] == WAITING:
            pass_time(arena, base, now)
            table[WAIT_PREEMPTED, row] += now - arena[at + S_PREEMPTED_NS]
            step_out(batcher, table, arena, base, slot)
        elif arena[at + S_STAGE] == SWAPPED:
            leave_host(table, arena, base, swap_place(arena, base, slot), now)
        else:
            leave_order(arena, base, at)
        cross_out(arena, base, slot, ABORTED)
        depart(table, arena, base, slot)
    end_batch(arena, base)


@kernel
def abandon(batcher, table, arena, base, row, now):
    """A new request leaves the queue, perhaps before the scheduler ever saw it."""
    pass_time(arena, base, now)
    fresh, other = False, arena[base + R_FRESH_ROW]
    for _ in range(arena[base + R_FRESH]):
        fresh = fresh or other == row
        other = arena[entry_at(arena, other) + Q_NEXT]
    if fresh:
        table[WAIT_STEP, row] = now - table[ARRIVAL, row] - arena[G_BEFORE_NS]
    else:
        for reason in range(4):
            table[WAIT_STEP + reason, row] += arena[base + R_CLOCKS + reason]
    arena[entry_at(arena, row) + Q_RANK] = NOT_IN_LINE
    left(batcher.order, table, arena, base, row, False)
    arena[base + R_QUEUED] -= 1
    arena[base + R_LEFT] += 1


@kernel
def close_ranks(arena, base):
    """Take those who have ended off the running list; the order of the others stays."""
    order = arena[base + R_ORDER]
    kept = 0
    for place in range(arena[base + R_ORDER_END]):
        slot = arena[order + place]
        if slot != GONE:
            at = slot_at(arena, base, slot)
            if arena[at + S_STAGE] == RUNNING:
                arena[order + kept] = slot
                arena[at + S_PLACE] = kept
                kept += 1
    arena[base + R_RUNNING] = kept
    arena[base + R_ORDER_END] = kept


@kernel
def book_step(arena, params, base, step, now):
    """Add an ended step to the usage, and to the log if one is kept."""
    decodes, prefill = arena[step + T_DECODES], arena[step + T_PREFILL]
    idle, padding = arena[step + T_IDLE], arena[step + T_PADDING]
    tokens = decodes + prefill + idle
    arena[base + U_STEPS] += 1
    arena[base + U_TOKENS] += tokens
    arena[base + U_CACHED] += arena[step + T_CACHED]
    arena[base + U_LOADED] += arena[step + T_LOADED] * arena[G_BLOCK_SIZE]
    arena[base + U_RECOMPUTED] += arena[step + T_RECOMPUTED]
    arena[base + U_WASTED] += idle
    arena[base + U_PADDED] += padded_tokens(params, tokens + padding, arena[step + T_CHUNKS]) - tokens
    arena[base + U_END_NS] = now
    kv = arena[step + T_KV] + arena[step + T_IDLE_KV]
    left = outside_box(params, decodes + idle, kv, prefill + padding, arena[step + T_CONTEXT])
    if left > 0:
        for axis in range(4):
            arena[base + U_OUTSIDE + axis] += left >> axis & 1
    if arena[G_LOG_ROWS] > 0:
        log = arena[G_LOG] + arena[G_LOGGED] * LOG_COLUMNS
        arena[G_LOGGED] += 1
        arena[log] = arena[base + R_INDEX]
        arena[log + 1] = arena[step + T_START_NS]
        arena[log + 2] = now
        arena[log + 3] = decodes
        arena[log + 4] = prefill
        arena[log + 5] = arena[step + T_RUNNING]
        arena[log + 6] = arena[step + T_WAITING]
        arena[log + 7] = arena[step + T_BLOCKS]
        arena[log + 8] = arena[base + R_AWAITED_SINCE_NS]
