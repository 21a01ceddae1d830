"""Static and dynamic batching: policies/batching/static.py in arrays."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import Static, made_of
from llmqsim.engine.compiled.batchers.rows.kernels import by_rows
from llmqsim.engine.compiled.columns import ARRIVAL, MAX_TOKENS, PROMPT_TOKENS
from llmqsim.engine.compiled.layout import *  # names of words, nothing else
from llmqsim.engine.compiled.orders import catch_up, lifted
from llmqsim.engine.compiled.orders.kernels import put_back
from llmqsim.engine.compiled.queue.kernels import entry_at, head, lift
from llmqsim.engine.compiled.step.entry.kernels import admission, settle_in
from llmqsim.engine.compiled.step.rows.kernels import slot_at, turn_away
from llmqsim.engine.compiled.step.running.kernels import grow, snapshot
from llmqsim.jit import kernel


@kernel
def draft(batcher, table, arena, costs, params, base, step, now):
    """Go on with the batch, or start one."""
    if arena[base + R_RUNNING] + arena[base + R_ENDED] > 0:
        go_on(batcher, table, arena, base, step, now)
    elif arena[base + R_QUEUED] > 0:
        patience_ends_ns = oldest_arrival(table, arena, base) + batcher.max_wait_ns
        if arena[base + R_QUEUED] < min(batcher.size, arena[G_MAX_NUM_SEQS]) and now < patience_ends_ns:
            turn_away(arena, base, step, rules.WAIT_SLOTS)
            arena[base + R_RETRY_NS] = patience_ends_ns
        else:
            begin(batcher, table, arena, base, step, now)


@kernel
def go_on(batcher, table, arena, base, step, now):
    """A token for everybody who runs, and a row for nobody in the place of each who has ended."""
    for place in range(arena[G_SCRATCH], arena[G_SCRATCH] + snapshot(arena, base)):
        grow(batcher, table, arena, base, step, arena[place], NO_LIMIT, 0, now)
    for place in range(arena[base + R_ENDED]):
        at = slot_at(arena, base, arena[arena[base + R_KEPT] + place])
        arena[step + T_IDLE] += 1
        arena[step + T_IDLE_KV] += rules.padded_context(arena[at + S_COMPUTED], arena[at + S_PADDING], arena[G_LONGEST])
    turn_away(arena, base, step, rules.WAIT_SLOTS)


@kernel
def oldest_arrival(table, arena, base):
    """When the first of those who wait has come: rows are chained in the order of sending, and nobody comes back."""
    while arena[entry_at(arena, arena[base + R_OLDEST_ROW]) + Q_RANK] == NOT_IN_LINE:
        arena[base + R_OLDEST_ROW] = arena[entry_at(arena, arena[base + R_OLDEST_ROW]) + Q_NEXT]
    return table[ARRIVAL, arena[base + R_OLDEST_ROW]]


@kernel
def begin(batcher, table, arena, base, step, now):
    """As many as there are slots for, and memory if all are as long as the longest prompt and answer among them."""
    prompt = answer = hold = count = 0
    first = last = NOBODY_IN_LINE
    if arena[base + R_QUEUED] > arena[G_MAX_NUM_SEQS]:
        turn_away(arena, base, step, rules.WAIT_SLOTS)
    while count < min(arena[base + R_QUEUED], arena[G_MAX_NUM_SEQS]):
        catch_up(batcher.order, table, arena, base, now)
        row = head(arena, base)
        longest_prompt = max(prompt, table[PROMPT_TOKENS, row])
        longest_answer = max(answer, table[MAX_TOKENS, row])
        longest = min(longest_prompt + longest_answer, arena[G_LONGEST])
        blocks = rules.blocks_for(longest, arena[G_BLOCK_SIZE])
        if count > 0 and (count + 1) * blocks > arena[base + R_FREE_BLOCKS] - arena[G_WATERMARK]:
            turn_away(arena, base, step, rules.WAIT_KV)
            break
        prompt, answer, hold = longest_prompt, longest_answer, longest
        lift(arena, base)
        lifted(batcher.order, table, arena, base, row)
        if first < 0:
            first = row
        else:
            arena[entry_at(arena, last) + Q_SIBLING] = row
        last = row
        count += 1
    while first >= 0:
        own = table[PROMPT_TOKENS, first]
        following = arena[entry_at(arena, first) + Q_SIBLING]
        refused_by, want, hit = admission(arena, base, -1, first, own, arena[step + T_BUDGET], NO_LIMIT, hold)
        if refused_by != rules.ADMITTED:
            arena[step + T_BLOCKED_BY] = refused_by
            break
        settle_in(batcher, table, arena, base, step, -1, first, want, hit, hold, prompt - own, now)
        first = following
    put_back(batcher.order, table, arena, base, first)


made_of(Static, by_rows(draft))
