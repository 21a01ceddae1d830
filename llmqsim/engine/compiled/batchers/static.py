"""Static and dynamic batching: policies/batching/static.py in arrays."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import Static, made_of
from llmqsim.engine.compiled.batchers.rows import by_rows
from llmqsim.engine.compiled.columns import ARRIVAL, MAX_TOKENS, PROMPT_TOKENS
from llmqsim.engine.compiled.orders import catch_up, lifted
from llmqsim.engine.compiled.orders.common import put_back
from llmqsim.engine.compiled.queue import head, lift
from llmqsim.engine.compiled.step.entry import admission, settle_in
from llmqsim.engine.compiled.step.rows import turn_away
from llmqsim.engine.compiled.step.running import grow, snapshot
from llmqsim.engine.compiled.world.limits import NO_LIMIT
from llmqsim.engine.compiled.world.queue import NOBODY_IN_LINE, NOT_IN_LINE, entry_at
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.jit import kernel


@kernel
def draft(batcher, table, run, arena, costs, params, replica, step, now):
    """Go on with the batch, or start one."""
    if replica.running + replica.ended > 0:
        go_on(batcher, table, run, arena, replica, step, now)
    elif replica.queued > 0:
        patience_ends_ns = oldest_arrival(table, run, arena, replica) + batcher.max_wait_ns
        if replica.queued < min(batcher.size, run.max_num_seqs) and now < patience_ends_ns:
            turn_away(replica, step, rules.WAIT_SLOTS)
            replica.retry_ns = patience_ends_ns
        else:
            begin(batcher, table, run, arena, replica, step, now)


@kernel
def go_on(batcher, table, run, arena, replica, step, now):
    """A token for everybody who runs, and a row for nobody in the place of each who has ended."""
    for place in range(run.scratch, run.scratch + snapshot(run, arena, replica)):
        grow(batcher, table, run, arena, replica, step, arena[place], NO_LIMIT, 0, now)
    for place in range(replica.ended):
        request = request_at(arena, replica.slots, arena[replica.kept + place])
        step.idle_rows += 1
        step.idle_kv_tokens += rules.padded_context(request.computed_tokens, request.padding_tokens, run.longest)
    turn_away(replica, step, rules.WAIT_SLOTS)


@kernel
def oldest_arrival(table, run, arena, replica):
    """When the first of those who wait has come: rows are chained in the order of sending, and nobody comes back."""
    while entry_at(arena, run.queue, replica.oldest_row).rank == NOT_IN_LINE:
        replica.oldest_row = entry_at(arena, run.queue, replica.oldest_row).next_row
    return table[ARRIVAL, replica.oldest_row]


@kernel
def begin(batcher, table, run, arena, replica, step, now):
    """As many as there are slots for, and memory if all are as long as the longest prompt and answer among them."""
    prompt = answer = hold = count = 0
    first = last = NOBODY_IN_LINE
    if replica.queued > run.max_num_seqs:
        turn_away(replica, step, rules.WAIT_SLOTS)
    while count < min(replica.queued, run.max_num_seqs):
        catch_up(batcher.order, table, run, arena, replica, now)
        row = head(run, arena, replica)
        longest_prompt = max(prompt, table[PROMPT_TOKENS, row])
        longest_answer = max(answer, table[MAX_TOKENS, row])
        longest = min(longest_prompt + longest_answer, run.longest)
        blocks = rules.blocks_for(longest, run.block_size)
        if count > 0 and (count + 1) * blocks > replica.free_blocks - run.watermark:
            turn_away(replica, step, rules.WAIT_KV)
            break
        prompt, answer, hold = longest_prompt, longest_answer, longest
        lift(run, arena, replica)
        lifted(batcher.order, table, run, arena, replica, row)
        if first < 0:
            first = row
        else:
            entry_at(arena, run.queue, last).sibling = row
        last = row
        count += 1
    while first >= 0:
        own = table[PROMPT_TOKENS, first]
        following = entry_at(arena, run.queue, first).sibling
        refused_by, want, hit = admission(run, arena, replica, -1, first, own, step.budget, NO_LIMIT, hold)
        if refused_by != rules.ADMITTED:
            step.blocked_by = refused_by
            break
        settle_in(batcher, table, run, arena, replica, step, -1, first, want, hit, hold, prompt - own, now)
        first = following
    put_back(batcher.order, table, run, arena, replica, first)


made_of(Static, by_rows(draft))
