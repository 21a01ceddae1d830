"""A replica of the compiled engine, from event to event, and requests that are sent to many of them when they are due.

Events of a replica are, in their order within an instant (llmqsim/clock.py): a step ends, a request is delivered, steps
are formed. batcher : compiled/batchers; router : compiled/routers; other arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.batchers import close_steps, commit_step, form_step, stride_on
from llmqsim.engine.compiled.books.kernels import all_waiting, tally
from llmqsim.engine.compiled.books.kernels import look as look_at_queue
from llmqsim.engine.compiled.columns import ARRIVAL, INTENDED, OUTCOME, REJECTED, REPLICA_OF, WAIT_PREEMPTED, WAIT_STEP
from llmqsim.engine.compiled.layout import *  # names of words, nothing else
from llmqsim.engine.compiled.queue.kernels import chain, entry_at, join
from llmqsim.engine.compiled.routers import admit, asks, choose, ended, hear_reports, look, next_report
from llmqsim.engine.compiled.step.rows.kernels import next_row, slot_at, step_at, write_marks
from llmqsim.jit import inlined, kernel


@kernel
def deliver(table, arena, base):
    """The next request on its way joins the queue."""
    row = arena[base + R_DELIVER_ROW]
    take_in(table, arena, base, row, arena[base + R_DELIVER_NS])
    if arena[G_SORTED] != 0:
        expect(table, arena, base, arena[entry_at(arena, row) + Q_NEXT])
    else:
        expect(table, arena, base, next_row(table, arena, base, row))


@kernel
def take_in(table, arena, base, row, now):
    """A request joins the queue; it can enter the next step that is formed."""
    tally(arena, base, now)
    arena[base + U_REQUESTS] += 1
    if arena[G_SORTED] != 0:
        join(table, arena, base, row)
    elif arena[base + R_QUEUED] == 0:
        arena[base + R_HEAD_ROW] = row
    if arena[base + R_FRESH] == 0:
        arena[base + R_FRESH_ROW] = row
    arena[base + R_QUEUED] += 1
    arena[base + R_FRESH] += 1
    arena[base + U_WAITING_PEAK] = max(arena[base + U_WAITING_PEAK], all_waiting(arena, base))
    if arena[base + R_STEPS] == 0:
        arena[base + R_FORM_NS] = min(arena[base + R_FORM_NS], now)


@kernel
def expect(table, arena, base, row):
    """Note the request that will be delivered next (-1: none is known yet)."""
    arena[base + R_DELIVER_ROW] = row
    arena[base + R_DELIVER_NS] = NEVER if row < 0 else table[ARRIVAL, row] + arena[G_BEFORE_NS]


@inlined
def form_ahead(batcher, table, arena, costs, params, base, now):
    """Form as many steps as in_flight (or the pipeline) allows; False: a replica with requests can't form a step."""
    arena[base + R_FORM_NS] = NEVER
    arena[base + R_RETRY_NS] = NEVER
    arena[base + R_AWAITED_SINCE_NS] = now
    while arena[base + R_STEPS] < max(arena[G_IN_FLIGHT], arena[G_STAGES]):
        if not form_step(batcher, table, arena, costs, params, base, now):
            break
    if arena[base + R_STEPS] > 0:
        return True
    if arena[base + R_RETRY_NS] != NEVER:  # the policy has said when to ask it again
        arena[base + R_FORM_NS] = arena[base + R_RETRY_NS]
        arena[base + R_ASKED_NS] = max(arena[base + R_ASKED_NS], arena[base + R_RETRY_NS])
        return True
    return arena[base + R_RUNNING] + all_waiting(arena, base) == 0


@kernel
def advance(batcher, table, arena, costs, params, base, commit_limit, form_limit):
    """Do what this replica does up to commits at `commit_limit` and all else before `form_limit`; say why it stopped."""
    while True:
        if arena[base + R_LONGEST_NS] > LONGEST_STEP or arena[base + R_LAST_COMMIT_NS] > LAST_TIME:
            return TOO_LONG
        if arena[G_FAULT] != DONE:
            return arena[G_FAULT]
        form_ns, deliver_ns = arena[base + R_FORM_NS], arena[base + R_DELIVER_NS]
        end_ns = arena[step_at(arena, base, 0) + T_END_NS] if arena[base + R_STEPS] > 0 else NEVER
        if end_ns <= deliver_ns and end_ns <= form_ns:
            if end_ns > commit_limit:
                break
            if arena[G_LOG_ROWS] > 0 and arena[G_LOGGED] == arena[G_LOG_ROWS]:
                return LOG_IS_FULL
            commit_step(batcher, table, arena, params, base)
        elif deliver_ns <= form_ns:
            if deliver_ns >= form_limit:
                break
            deliver(table, arena, base)
        elif form_ns >= form_limit:
            break
        elif stride_on(batcher, table, arena, costs, params, base, commit_limit, form_limit) == 0 and not form_ahead(
            batcher, table, arena, costs, params, base, form_ns
        ):
            return STUCK if arena[G_FAULT] == DONE else arena[G_FAULT]
    arena[arena[G_NEXT_NS] + arena[base + R_INDEX]] = min(end_ns, deliver_ns, form_ns)
    return arena[G_FAULT]


@kernel
def route(batcher, router, table, arena, costs, params, stop_ns):
    """Send every request that is due before `stop_ns` to the replica that the router chooses; say why it stopped.

    All replicas that do something up to that instant are brought there first, so that what the router sees is fresh; and,
    where they report every so often, to each report before it. Who may not enter is told so at once.
    """
    while arena[G_NEXT_ROW] < arena[G_ROWS]:
        row = arena[G_NEXT_ROW]
        due_ns = table[INTENDED, row]
        if due_ns >= stop_ns:
            break
        if table[OUTCOME, row] == REJECTED:
            arena[G_NEXT_ROW] += 1
            continue
        report_ns = next_report(router, arena)
        now = min(due_ns, report_ns)
        for index in range(arena[G_REPLICAS]):
            if arena[arena[G_NEXT_NS] + index] <= now:
                base = arena[G_FIRST_REPLICA] + index * arena[G_STRIDE]
                code = advance(batcher, table, arena, costs, params, base, now, now)
                if code != DONE:
                    return code
        hear_ends(router, table, arena)
        if report_ns <= due_ns:
            hear_reports(router, table, arena, now)
        else:
            look(router, table, arena, now)
            table[ARRIVAL, row] = now
            if asks(router, arena):
                return ASK
            if admit(router, table, arena, costs, row, now):
                send(router, table, arena, costs, row, now)
            arena[G_NEXT_ROW] += 1
    return DONE


@kernel
def hear_ends(router, table, arena):
    """The router hears of all who have ended, where it listens (G_ANSWERS)."""
    for place in range(arena[G_ANSWERED]):
        ended(router, table, arena, arena[arena[G_ANSWERS] + place])
    arena[G_ANSWERED] = 0


@kernel
def send(router, table, arena, costs, row, now):
    """A request leaves its client for the replica that the router chooses."""
    table[ARRIVAL, row] = now
    index = choose(router, table, arena, costs, row)
    base = arena[G_FIRST_REPLICA] + index * arena[G_STRIDE]
    table[REPLICA_OF, row] = index
    arena[G_ROUTED] = row + 1
    arena[G_SENT] += 1
    if arena[G_SORTED] != 0:
        chain(arena, base, row)
    if arena[base + R_DELIVER_ROW] < 0:
        expect(table, arena, base, row)
        next_ns = arena[G_NEXT_NS] + index
        arena[next_ns] = min(arena[next_ns], arena[base + R_DELIVER_NS])


@kernel
def close(batcher, table, arena, base, now):
    """The clock stops: write the marks of requests that are still here."""
    close_steps(batcher, arena, base)
    tally(arena, base, now)
    if arena[base + R_STEPS] > 0:
        arena[base + U_CUT] = now - arena[step_at(arena, base, 0) + T_START_NS]
    look_at_queue(table, arena, base, now)
    for place in range(arena[base + R_RUNNING]):
        write_marks(table, arena, slot_at(arena, base, arena[arena[base + R_ORDER] + place]))
    for place in range(arena[base + R_SWAPPED]):
        close_waiting(table, arena, base, arena[arena[base + R_SWAPS] + place], -1, now)
    if arena[G_SORTED] != 0:
        close_sorted(table, arena, base, now)
        return
    for place in range(arena[base + R_PREEMPTED]):
        close_waiting(table, arena, base, arena[arena[base + R_STACK] + place], -1, now)
    row = arena[base + R_HEAD_ROW]
    for _ in range(arena[base + R_QUEUED]):
        close_waiting(table, arena, base, -1, row, now)
        row = next_row(table, arena, base, row)


@kernel
def close_waiting(table, arena, base, slot, row, now):
    """Somebody still waits: in a slot, or a new request (slot -1)."""
    if slot < 0:
        for reason in range(4):
            table[WAIT_STEP + reason, row] += arena[base + R_CLOCKS + reason]
    else:
        at = slot_at(arena, base, slot)
        table[WAIT_PREEMPTED, arena[at + S_ROW]] += now - arena[at + S_PREEMPTED_NS]
        write_marks(table, arena, at)


@kernel
def close_sorted(table, arena, base, now):
    """The same for all who wait in a sorted queue."""
    left = arena[base + R_QUEUED] + arena[base + R_PREEMPTED]
    row = arena[base + R_OLDEST_ROW]
    while left > 0:
        at = entry_at(arena, row)
        if arena[at + Q_RANK] != NOT_IN_LINE:
            close_waiting(table, arena, base, arena[at + Q_SLOT], row, now)
            left -= 1
        row = arena[at + Q_NEXT]
