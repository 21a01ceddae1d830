"""A step ends: tokens are delivered, requests leave, and what was used is booked.

Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.cost.kernels import outside_box, padded_tokens
from llmqsim.engine.compiled.batchers import close_steps
from llmqsim.engine.compiled.blocks.pool import disown, release
from llmqsim.engine.compiled.books import count_gap, pass_time, tally
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
from llmqsim.engine.compiled.orders import left
from llmqsim.engine.compiled.step.forming import start
from llmqsim.engine.compiled.step.rows import drop_oldest, held_blocks, leave_order, step_in_flight, write_marks
from llmqsim.engine.compiled.swap import leave_host, swap_place
from llmqsim.engine.compiled.world.limits import ABORTED, GONE
from llmqsim.engine.compiled.world.queue import NOT_IN_LINE, entry_at
from llmqsim.engine.compiled.world.request import FREE, KEPT, RUNNING, SWAPPED, WAITING, request_at
from llmqsim.engine.compiled.world.run import LOG_COLUMNS
from llmqsim.jit import kernel


@kernel
def commit(batcher, table, run, arena, params, replica):
    """The oldest step ends: its tokens are delivered, and who has all of them leaves and returns his blocks."""
    step = step_in_flight(run, arena, replica, 0)
    now = step.end_ns
    tally(replica, now)
    drop_oldest(run, replica)
    ended = 0
    for place in range(step.sampled):
        slot = arena[step.samples + place]
        if slot < 0:
            replica.usage.wasted_rows += slot == GONE
            continue
        request = request_at(arena, replica.slots, slot)
        if request.generated_tokens > 0:
            gap = now - request.last_ns
            count_gap(run, arena, request.class_id, gap, 1)
            request.max_gap_ns = max(request.max_gap_ns, gap)
        else:
            table[FIRST_TOKEN, request.row] = now + run.after_ns
        request.last_ns = now
        request.generated_tokens += 1
        if request.generated_tokens == request.output_tokens:
            finish(batcher, table, run, arena, replica, slot, now)
            ended += 1
    if ended > 0:
        close_ranks(arena, replica)
        end_batch(run, arena, replica)
    replica.last_commit_ns = now
    book_step(run, arena, params, replica, step, now)
    if replica.steps > 0 and run.stages == 1:
        start(step_in_flight(run, arena, replica, 0), now)
    replica.form_ns = now


@kernel
def finish(batcher, table, run, arena, replica, slot, now):
    """A request has all its tokens. Its slot is free at once; `close_ranks` takes it off the running list."""
    request = request_at(arena, replica.slots, slot)
    row = request.row
    if request.stage == WAITING:  # preempted after its last token went under way
        table[WAIT_PREEMPTED, row] += now - request.preempted_ns
        step_out(batcher, table, run, arena, replica, slot)
    elif request.stage == SWAPPED:
        leave_host(table, arena, replica, swap_place(arena, replica, slot), now)
    cross_out(run, arena, replica, slot, GONE)
    leave(table, run, arena, replica, slot, now)


@kernel
def step_out(batcher, table, run, arena, replica, slot):
    """A preempted request leaves the queue from wherever it is."""
    disown(run, arena, replica, slot)
    replica.preempted -= 1
    if run.sorted != 0:
        row = request_at(arena, replica.slots, slot).row
        entry_at(arena, run.queue, row).rank = NOT_IN_LINE
        left(batcher.order, table, run, arena, replica, row, False)
        return
    stack, found = replica.stack, False
    for place in range(replica.preempted):
        found = found or arena[stack + place] == slot
        if found:
            arena[stack + place] = arena[stack + place + 1]


@kernel
def cross_out(run, arena, replica, slot, mark):
    """Steps in flight have a row for nobody now. mark : GONE or ABORTED."""
    for ahead in range(replica.steps):
        step = step_in_flight(run, arena, replica, ahead)
        for place in range(step.sampled):
            if arena[step.samples + place] == slot:
                arena[step.samples + place] = mark


@kernel
def leave(table, run, arena, replica, slot, now):
    """A request has all its tokens: its row is written, and its client will hear of it."""
    request = request_at(arena, replica.slots, slot)
    row = request.row
    table[FINISH, row] = now + run.after_ns
    table[OUTCOME, row] = COMPLETED
    arena[run.outstanding + replica.index] -= 1
    if run.answers > 0:
        arena[run.answers + run.answered] = row
        run.answered += 1
    depart(table, run, arena, replica, slot)


@kernel
def depart(table, run, arena, replica, slot):
    """A request that has ended returns its blocks and its slot, unless a batch keeps them until all of it has ended."""
    request = request_at(arena, replica.slots, slot)
    write_marks(table, request)
    replica.left += 1
    if run.keeps_slots != 0 and request.stage == RUNNING:
        request.stage = KEPT
        arena[replica.kept + replica.ended] = slot
        replica.ended += 1
    else:
        vacate(run, arena, replica, slot)


@kernel
def vacate(run, arena, replica, slot):
    """Blocks and slot of a request are free."""
    request = request_at(arena, replica.slots, slot)
    if request.stage == RUNNING or request.stage == KEPT:
        release(run, arena, replica, slot, held_blocks(run, request), request.computed_tokens // run.block_size, False)
    request.stage = FREE
    arena[replica.free + replica.free_slots] = slot
    replica.free_slots += 1


@kernel
def end_batch(run, arena, replica):
    """Once all of a static batch have ended, their slots and blocks are free."""
    if replica.running == 0:
        for place in range(replica.ended):
            vacate(run, arena, replica, arena[replica.kept + place])
        replica.ended = 0


@kernel
def abort(batcher, table, run, arena, replica, row, now):
    """The client has given up: the request leaves at once with its blocks; its rows under way are wasted."""
    tally(replica, now)
    close_steps(batcher, run, arena, replica)
    slot = entry_at(arena, run.queue, row).slot
    if slot < 0:
        abandon(batcher, table, run, arena, replica, row, now)
    else:
        request = request_at(arena, replica.slots, slot)
        replica.usage.aborted_tokens += max(request.high_water_tokens, request.computed_tokens) - table[CACHED, row]
        if request.stage == WAITING:
            pass_time(replica, now)
            table[WAIT_PREEMPTED, row] += now - request.preempted_ns
            step_out(batcher, table, run, arena, replica, slot)
        elif request.stage == SWAPPED:
            leave_host(table, arena, replica, swap_place(arena, replica, slot), now)
        else:
            leave_order(arena, replica, request)
        cross_out(run, arena, replica, slot, ABORTED)
        depart(table, run, arena, replica, slot)
    end_batch(run, arena, replica)


@kernel
def abandon(batcher, table, run, arena, replica, row, now):
    """A new request leaves the queue, perhaps before the scheduler ever saw it."""
    pass_time(replica, now)
    fresh, other = False, replica.fresh_row
    for _ in range(replica.fresh):
        fresh = fresh or other == row
        other = entry_at(arena, run.queue, other).next_row
    if fresh:
        table[WAIT_STEP, row] = now - table[ARRIVAL, row] - run.before_ns
    else:
        for reason in range(4):
            table[WAIT_STEP + reason, row] += replica.clocks[reason]
    entry_at(arena, run.queue, row).rank = NOT_IN_LINE
    left(batcher.order, table, run, arena, replica, row, False)
    replica.queued -= 1
    replica.left += 1


@kernel
def close_ranks(arena, replica):
    """Take those who have ended off the running list; the order of the others stays."""
    order = replica.order
    kept = 0
    for place in range(replica.order_end):
        slot = arena[order + place]
        if slot != GONE:
            request = request_at(arena, replica.slots, slot)
            if request.stage == RUNNING:
                arena[order + kept] = slot
                request.place = kept
                kept += 1
    replica.running = kept
    replica.order_end = kept


@kernel
def book_step(run, arena, params, replica, step, now):
    """Add an ended step to the usage, and to the log if one is kept."""
    decodes, prefill = step.decodes, step.prefill_tokens
    idle, padding = step.idle_rows, step.padding_tokens
    tokens = decodes + prefill + idle
    replica.usage.steps += 1
    replica.usage.tokens += tokens
    replica.usage.cached_tokens += step.cached_tokens
    replica.usage.loaded_tokens += step.loaded_blocks * run.block_size
    replica.usage.recomputed_tokens += step.recomputed_tokens
    replica.usage.wasted_rows += idle
    replica.usage.padded_tokens += padded_tokens(params, tokens + padding, step.chunks) - tokens
    replica.usage.end_ns = now
    kv = step.kv_tokens + step.idle_kv_tokens
    left = outside_box(params, decodes + idle, kv, prefill + padding, step.context_tokens)
    if left > 0:
        for axis in range(4):
            replica.usage.outside[axis] += left >> axis & 1
    if run.log_rows > 0:
        log = run.log + run.logged * LOG_COLUMNS
        run.logged += 1
        arena[log] = replica.index
        arena[log + 1] = step.start_ns
        arena[log + 2] = now
        arena[log + 3] = decodes
        arena[log + 4] = prefill
        arena[log + 5] = step.running
        arena[log + 6] = step.waiting
        arena[log + 7] = step.kv_blocks
        arena[log + 8] = replica.awaited_since_ns
