"""Several prompts that share a step's tokens: PartialPrefills of policies/batching/continuous.py in arrays."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import PartialPrefills, made_of
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import catch_up, lifted
from llmqsim.engine.compiled.orders.kernels import put_back
from llmqsim.engine.compiled.queue.kernels import entry_at, lift
from llmqsim.engine.compiled.step.entry.kernels import admission, settle_in
from llmqsim.engine.compiled.step.rows.kernels import known_tokens, slot_at, turn_away
from llmqsim.engine.compiled.step.running.kernels import bring_back, grow, snapshot_decodes_first
from llmqsim.jit import kernel


@kernel
def draft(batcher, table, arena, costs, params, base, step, now):
    """Decodes first, then half-prefilled requests, then new ones that may be partial."""
    scratch = arena[G_SCRATCH]
    count, decodes = snapshot_decodes_first(arena, base)
    for place in range(scratch, scratch + decodes):
        grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, 0, now)
    partial, long = count - decodes, 0
    for place in range(scratch + decodes, scratch + count):
        long += arena[slot_at(arena, base, arena[place]) + S_KNOWN] >= batcher.long_tokens
    newcomers, chosen = choose(batcher, table, arena, base, batcher.n - partial, batcher.long - long, now)
    share = max(1, arena[step + T_BUDGET] // max(1, partial + chosen))
    for place in range(scratch + decodes, scratch + count):
        grow(batcher, table, arena, base, step, arena[place], share, 0, now)
    if arena[step + T_PREEMPTED] != 0 or not bring_back(batcher, table, arena, base, step, now):
        put_back(batcher.order, table, arena, base, newcomers)
        return
    admit_chosen(batcher, table, arena, base, step, newcomers, share, now)
    if chosen == 0 and arena[base + R_QUEUED] + arena[base + R_PREEMPTED] > 0:
        turn_away(arena, base, step, rules.WAIT_TOKEN_BUDGET)


@kernel
def choose(batcher, table, arena, base, places, long_places, now):
    """Who may start, in the queue's order, taken off it: (the first, to whom the others are chained, how many).

    Long prompts that find no place are passed over.
    """
    first = last = passed = NOBODY_IN_LINE
    chosen, left = 0, arena[base + R_QUEUED] + arena[base + R_PREEMPTED]
    while left > 0 and chosen < places:
        catch_up(batcher.order, table, arena, base, now)
        row = lift(arena, base)
        lifted(batcher.order, table, arena, base, row)
        at = entry_at(arena, row)
        left -= 1
        if known_tokens(table, arena, base, arena[at + Q_SLOT], row) >= batcher.long_tokens:
            if long_places <= 0:
                arena[at + Q_SIBLING] = passed
                passed = row
                continue
            long_places -= 1
        if first < 0:
            first = row
        else:
            arena[entry_at(arena, last) + Q_SIBLING] = row
        last = row
        chosen += 1
    put_back(batcher.order, table, arena, base, passed)
    return first, chosen


@kernel
def admit_chosen(batcher, table, arena, base, step, row, share, now):
    """Let them enter with a share of the tokens each, up to the first that may not."""
    while row >= 0:
        at = entry_at(arena, row)
        slot, following = arena[at + Q_SLOT], arena[at + Q_SIBLING]
        known = known_tokens(table, arena, base, slot, row)
        refused_by, want, hit = admission(arena, base, slot, row, known, arena[step + T_BUDGET], share, 0)
        if refused_by != rules.ADMITTED:
            arena[step + T_BLOCKED_BY] = refused_by
            break
        settle_in(batcher, table, arena, base, step, slot, row, want, hit, 0, 0, now)
        row = following
    put_back(batcher.order, table, arena, base, row)


made_of(PartialPrefills, by_rows(draft))
