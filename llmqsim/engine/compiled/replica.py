"""A replica of the compiled engine, from event to event.

These are, in their order within an instant (llmqsim/clock.py): a step ends, a request is delivered, steps are formed.
batcher : compiled/batchers; other arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import commit_step, form_step, stride_on
from llmqsim.engine.compiled.books import all_waiting, tally
from llmqsim.engine.compiled.columns import ARRIVAL
from llmqsim.engine.compiled.queue import join
from llmqsim.engine.compiled.step.rows import next_row, step_in_flight
from llmqsim.engine.compiled.world.limits import DONE, LAST_TIME, LOG_IS_FULL, LONGEST_STEP, NEVER, STUCK, TOO_LONG
from llmqsim.engine.compiled.world.queue import entry_at
from llmqsim.jit import inlined, kernel


@kernel
def deliver(table, run, arena, replica):
    """The next request on its way joins the queue."""
    row = replica.deliver_row
    take_in(table, run, arena, replica, row, replica.deliver_ns)
    if run.sorted != 0:
        expect(table, run, replica, entry_at(arena, run.queue, row).next_row)
    else:
        expect(table, run, replica, next_row(table, run, replica, row))


@kernel
def take_in(table, run, arena, replica, row, now):
    """A request joins the queue; it can enter the next step that is formed."""
    tally(replica, now)
    replica.usage.requests += 1
    if run.sorted != 0:
        join(table, run, arena, replica, row)
    elif replica.queued == 0:
        replica.head_row = row
    if replica.fresh == 0:
        replica.fresh_row = row
    replica.queued += 1
    replica.fresh += 1
    replica.usage.waiting_peak = max(replica.usage.waiting_peak, all_waiting(replica))
    if replica.steps == 0:
        replica.form_ns = min(replica.form_ns, now)


@kernel
def expect(table, run, replica, row):
    """Note the request that will be delivered next (-1: none is known yet)."""
    replica.deliver_row = row
    replica.deliver_ns = NEVER if row < 0 else table[ARRIVAL, row] + run.before_ns


@inlined
def form_ahead(batcher, table, run, arena, costs, params, replica, now):
    """Form as many steps as in_flight (or the pipeline) allows; False: a replica with requests can't form a step."""
    replica.form_ns = NEVER
    replica.retry_ns = NEVER
    replica.awaited_since_ns = now
    while replica.steps < max(run.in_flight, run.stages):
        if not form_step(batcher, table, run, arena, costs, params, replica, now):
            break
    if replica.steps > 0:
        return True
    if replica.retry_ns != NEVER:  # the policy has said when to ask it again
        replica.form_ns = replica.retry_ns
        replica.asked_ns = max(replica.asked_ns, replica.retry_ns)
        return True
    return replica.running + all_waiting(replica) == 0


@kernel
def advance(batcher, table, run, arena, costs, params, replica, commit_limit, form_limit):
    """Do what this replica does up to commits at `commit_limit` and all else before `form_limit`; say why it stopped."""
    while True:
        if replica.longest_ns > LONGEST_STEP or replica.last_commit_ns > LAST_TIME:
            return TOO_LONG
        if run.fault != DONE:
            return run.fault
        form_ns, deliver_ns = replica.form_ns, replica.deliver_ns
        end_ns = step_in_flight(run, arena, replica, 0).end_ns if replica.steps > 0 else NEVER
        if end_ns <= deliver_ns and end_ns <= form_ns:
            if end_ns > commit_limit:
                break
            if run.log_rows > 0 and run.logged == run.log_rows:
                return LOG_IS_FULL
            commit_step(batcher, table, run, arena, params, replica)
        elif deliver_ns <= form_ns:
            if deliver_ns >= form_limit:
                break
            deliver(table, run, arena, replica)
        elif form_ns >= form_limit:
            break
        elif stride_on(
            batcher, table, run, arena, costs, params, replica, commit_limit, form_limit
        ) == 0 and not form_ahead(batcher, table, run, arena, costs, params, replica, form_ns):
            return STUCK if run.fault == DONE else run.fault
    arena[run.next_ns + replica.index] = min(end_ns, deliver_ns, form_ns)
    return run.fault
