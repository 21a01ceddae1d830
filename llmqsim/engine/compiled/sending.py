"""Requests that are sent when they are due, to the replica that the router chooses. batcher : compiled/batchers; router :
compiled/routers; other arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.closing import close_all
from llmqsim.engine.compiled.columns import ARRIVAL, INTENDED, OUTCOME, REJECTED, REPLICA_OF
from llmqsim.engine.compiled.entries import CLOSE, OFFER, SEND
from llmqsim.engine.compiled.queue import chain
from llmqsim.engine.compiled.replica import advance, expect
from llmqsim.engine.compiled.routers import admit, asks, choose, ended, hear_reports, look, next_report
from llmqsim.engine.compiled.step.rows import next_row
from llmqsim.engine.compiled.world.limits import ASK, DONE
from llmqsim.engine.compiled.world.replica import replica_at
from llmqsim.engine.compiled.world.run import run_at
from llmqsim.jit import kernel


@kernel
def route(batcher, router, table, run, arena, costs, params, stop_ns):
    """Send every request that is due before `stop_ns` to the replica that the router chooses; say why it stopped.

    All replicas that do something up to that instant are brought there first, so that what the router sees is fresh; and,
    where they report every so often, to each report before it. Who may not enter is told so at once.
    """
    while run.next_row < run.rows:
        row = run.next_row
        due_ns = table[INTENDED, row]
        if due_ns >= stop_ns:
            break
        if table[OUTCOME, row] == REJECTED:
            run.next_row += 1
            continue
        report_ns = next_report(router, run, arena)
        now = min(due_ns, report_ns)
        for index in range(run.replicas):
            if arena[run.next_ns + index] <= now:
                replica = replica_at(arena, run.first_replica + index * run.stride)
                code = advance(batcher, table, run, arena, costs, params, replica, now, now)
                if code != DONE:
                    return code
        hear_ends(router, table, run, arena)
        if report_ns <= due_ns:
            hear_reports(router, table, run, arena, now)
        else:
            look(router, table, run, arena, now)
            table[ARRIVAL, row] = now
            if asks(router, run, arena):
                return ASK
            if admit(router, table, run, arena, costs, row, now):
                send(router, table, run, arena, costs, row, now)
            run.next_row += 1
    return DONE


@kernel
def hear_ends(router, table, run, arena):
    """The router hears of all who have ended, where it listens (run.answers)."""
    for place in range(run.answered):
        ended(router, table, run, arena, arena[run.answers + place])
    run.answered = 0


@kernel
def send(router, table, run, arena, costs, row, now):
    """A request leaves its client for the replica that the router chooses."""
    table[ARRIVAL, row] = now
    index = choose(router, table, run, arena, costs, row)
    replica = replica_at(arena, run.first_replica + index * run.stride)
    table[REPLICA_OF, row] = index
    run.routed = row + 1
    run.sent += 1
    if run.sorted != 0:
        chain(run, arena, replica, row)
    if replica.deliver_row < 0:
        expect(table, run, replica, row)
        next_ns = run.next_ns + index
        arena[next_ns] = min(arena[next_ns], replica.deliver_ns)


@kernel
def entry(batcher, router, table, arena, costs, params, what, first, last):
    """Requests that are sent when they are due."""
    run = run_at(arena, 0)
    if what == SEND:
        return route(batcher, router, table, run, arena, costs, params, first)
    if what == CLOSE:
        return close_all(batcher, table, run, arena, first)
    for index in range(run.replicas):
        replica = replica_at(arena, run.first_replica + index * run.stride)
        if what == OFFER:
            if replica.deliver_row < 0:
                expect(table, run, replica, next_row(table, run, replica, first - 1))
        else:
            code = advance(batcher, table, run, arena, costs, params, replica, first, last)
            if code != DONE:
                return code
    hear_ends(router, table, run, arena)
    return DONE
