"""Clients that give up. batcher : compiled/batchers; router : compiled/routers; other arguments as in step/."""

from __future__ import annotations

from llmqsim.engine.compiled.clients.events import answered, next_number, push_event
from llmqsim.engine.compiled.columns import ARRIVAL, FINISH, FIRST_TOKEN, GAVE_UP, OUTCOME, REPLICA_OF, TIMED_OUT
from llmqsim.engine.compiled.routers import ended
from llmqsim.engine.compiled.step.ending import abort
from llmqsim.engine.compiled.world.clients import IDLE, IS_WATCHED, WATCHING
from llmqsim.engine.compiled.world.queue import NOT_DELIVERED, entry_at
from llmqsim.engine.compiled.world.replica import replica_at
from llmqsim.jit import kernel
from llmqsim.requests import UNSET


@kernel
def watch(batcher, router, table, run, arena, now):
    """Look at the request whose time is up, and note when the next one's is; the order of sending is that of deadlines."""
    if run.watch == WATCHING:
        row = arena[run.sent_rows + run.watched]
        if not is_answered(table, run, row):
            give_up(batcher, router, table, run, arena, row, now)
        run.watched += 1
    while run.watched < run.sent:
        row = arena[run.sent_rows + run.watched]
        if not is_answered(table, run, row):
            run.watch = WATCHING
            push_event(run, arena, table[ARRIVAL, row] + run.timeout_ns, next_number(run), 0, IS_WATCHED)
            return
        run.watched += 1
    run.watch = IDLE


@kernel
def is_answered(table, run, row):
    """Is it known that the answer is complete in time?"""
    return UNSET < table[FINISH, row] <= table[ARRIVAL, row] + run.timeout_ns


@kernel
def give_up(batcher, router, table, run, arena, row, now):
    """The client hangs up. The last token may be on its way to it; if not, the servers are told to stop."""
    index = table[REPLICA_OF, row]
    if table[FINISH, row] == UNSET:
        if entry_at(arena, run.queue, row).slot != NOT_DELIVERED:
            abort(batcher, table, run, arena, replica_at(arena, run.first_replica + index * run.stride), row, now)
        arena[run.outstanding + index] -= 1
        ended(router, table, run, arena, row)
    table[OUTCOME, row] = TIMED_OUT
    table[FINISH, row] = UNSET
    if table[FIRST_TOKEN, row] > now:
        table[FIRST_TOKEN, row] = UNSET
    table[GAVE_UP, row] = now
    run.last_client_ns = max(run.last_client_ns, now)
    answered(table, run, arena, row, now)
