"""Several prompts that share a step's tokens: PartialPrefills of policies/batching/continuous.py in arrays."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import PartialPrefills, made_of
from llmqsim.engine.compiled.batchers.rows import by_rows
from llmqsim.engine.compiled.orders import catch_up, lifted
from llmqsim.engine.compiled.orders.common import put_back
from llmqsim.engine.compiled.queue import lift
from llmqsim.engine.compiled.step.entry import admission, settle_in
from llmqsim.engine.compiled.step.rows import known_tokens, turn_away
from llmqsim.engine.compiled.step.running import bring_back, grow, snapshot_decodes_first
from llmqsim.engine.compiled.world.limits import NO_LIMIT
from llmqsim.engine.compiled.world.queue import NOBODY_IN_LINE, entry_at
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.jit import kernel


@kernel
def draft(batcher, table, run, arena, costs, params, replica, step, now):
    """Decodes first, then half-prefilled requests, then new ones that may be partial."""
    scratch = run.scratch
    count, decodes = snapshot_decodes_first(run, arena, replica)
    for place in range(scratch, scratch + decodes):
        grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now)
    partial, long = count - decodes, 0
    for place in range(scratch + decodes, scratch + count):
        long += request_at(arena, replica.slots, arena[place]).known_tokens >= batcher.long_tokens
    newcomers, chosen = choose(batcher, table, run, arena, replica, batcher.n - partial, batcher.long - long, now)
    share = max(1, step.budget // max(1, partial + chosen))
    for place in range(scratch + decodes, scratch + count):
        grow(batcher, table, run, arena, replica, step, arena[place], share, 0, now)
    if step.preempted != 0 or not bring_back(batcher, table, run, arena, replica, step, now):
        put_back(batcher.order, table, run, arena, replica, newcomers)
        return
    admit_chosen(batcher, table, run, arena, replica, step, newcomers, share, now)
    if chosen == 0 and replica.queued + replica.preempted > 0:
        turn_away(replica, step, rules.WAIT_TOKEN_BUDGET)


@kernel
def choose(batcher, table, run, arena, replica, places, long_places, now):
    """Who may start, in the queue's order, taken off it: (the first, to whom the others are chained, how many).

    Long prompts that find no place are passed over.
    """
    first = last = passed = NOBODY_IN_LINE
    chosen, left = 0, replica.queued + replica.preempted
    while left > 0 and chosen < places:
        catch_up(batcher.order, table, run, arena, replica, now)
        row = lift(run, arena, replica)
        lifted(batcher.order, table, run, arena, replica, row)
        entry = entry_at(arena, run.queue, row)
        left -= 1
        if known_tokens(table, arena, replica, entry.slot, row) >= batcher.long_tokens:
            if long_places <= 0:
                entry.sibling = passed
                passed = row
                continue
            long_places -= 1
        if first < 0:
            first = row
        else:
            entry_at(arena, run.queue, last).sibling = row
        last = row
        chosen += 1
    put_back(batcher.order, table, run, arena, replica, passed)
    return first, chosen


@kernel
def admit_chosen(batcher, table, run, arena, replica, step, row, share, now):
    """Let them enter with a share of the tokens each, up to the first that may not."""
    while row >= 0:
        entry = entry_at(arena, run.queue, row)
        slot, following = entry.slot, entry.sibling
        known = known_tokens(table, arena, replica, slot, row)
        refused_by, want, hit = admission(run, arena, replica, slot, row, known, step.budget, share, 0)
        if refused_by != rules.ADMITTED:
            step.blocked_by = refused_by
            break
        settle_in(batcher, table, run, arena, replica, step, slot, row, want, hit, 0, 0, now)
        row = following
    put_back(batcher.order, table, run, arena, replica, row)


made_of(PartialPrefills, by_rows(draft))
