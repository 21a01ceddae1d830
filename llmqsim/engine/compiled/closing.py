"""The clock stops: what is still here is written down. Arguments as in step/."""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import close_steps
from llmqsim.engine.compiled.books import look as look_at_queue
from llmqsim.engine.compiled.books import tally
from llmqsim.engine.compiled.columns import WAIT_PREEMPTED, WAIT_STEP
from llmqsim.engine.compiled.step.rows import next_row, step_in_flight, write_marks
from llmqsim.engine.compiled.world.limits import DONE
from llmqsim.engine.compiled.world.queue import NOT_IN_LINE, entry_at
from llmqsim.engine.compiled.world.replica import replica_at
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.jit import kernel


@kernel
def close(batcher, table, run, arena, replica, now):
    """The clock stops: write the marks of requests that are still here."""
    close_steps(batcher, run, arena, replica)
    tally(replica, now)
    if replica.steps > 0:
        replica.usage.cut_ns = now - step_in_flight(run, arena, replica, 0).start_ns
    look_at_queue(table, run, arena, replica, now)
    for place in range(replica.running):
        write_marks(table, request_at(arena, replica.slots, arena[replica.order + place]))
    for place in range(replica.swapped):
        close_waiting(table, arena, replica, arena[replica.swaps + place], -1, now)
    if run.sorted != 0:
        close_sorted(table, run, arena, replica, now)
        return
    for place in range(replica.preempted):
        close_waiting(table, arena, replica, arena[replica.stack + place], -1, now)
    row = replica.head_row
    for _ in range(replica.queued):
        close_waiting(table, arena, replica, -1, row, now)
        row = next_row(table, run, replica, row)


@kernel
def close_waiting(table, arena, replica, slot, row, now):
    """Somebody still waits: in a slot, or a new request (slot -1)."""
    if slot < 0:
        for reason in range(4):
            table[WAIT_STEP + reason, row] += replica.clocks[reason]
    else:
        request = request_at(arena, replica.slots, slot)
        table[WAIT_PREEMPTED, request.row] += now - request.preempted_ns
        write_marks(table, request)


@kernel
def close_sorted(table, run, arena, replica, now):
    """The same for all who wait in a sorted queue."""
    left = replica.queued + replica.preempted
    row = replica.oldest_row
    while left > 0:
        entry = entry_at(arena, run.queue, row)
        if entry.rank != NOT_IN_LINE:
            close_waiting(table, arena, replica, entry.slot, row, now)
            left -= 1
        row = entry.next_row


@kernel
def close_all(batcher, table, run, arena, now):
    """The clock stops."""
    for index in range(run.replicas):
        close(batcher, table, run, arena, replica_at(arena, run.first_replica + index * run.stride), now)
    return DONE
