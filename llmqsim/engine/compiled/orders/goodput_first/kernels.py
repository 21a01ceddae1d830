"""Who can still meet its SLO goes first: GoodputFirst of policies/ordering/deadline.py in arrays.

While a request waits its key changes once at most, from "it can" to "it can't", which only sends it back. So whoever comes
to the top with a key from before the last look is judged as of then, and nobody else is. R_MEMORY : how many steps had
been formed at the last look, R_TAIL : when it was. Those that went behind all are judged anew at each look, since a token
of theirs may still be under way.
"""

from __future__ import annotations

from llmqsim.engine.compiled.blocks.kernels import slot_of
from llmqsim.engine.compiled.columns import ARRIVAL, CLASS_ID, MAX_TOKENS, PREDICTED, PROMPT_TOKENS
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import GoodputFirst
from llmqsim.engine.compiled.orders.kernels import call_late, page, take_back_in, waiting, welcome
from llmqsim.engine.compiled.queue.kernels import entry_at, head, pop, push_key
from llmqsim.engine.costs.kernels import decode_ns
from llmqsim.jit import kernel
from llmqsim.policies import rules


@kernel
def key_of(order, table, arena, base, row, slot, now):
    """(can it, no target, can't; cost, or arrival)."""
    targets, prompt = arena[G_TARGETS] + table[CLASS_ID, row] * TARGETS, table[PROMPT_TOKENS, row]
    known, generated = prompt, 0
    if slot >= 0:
        at = slot_of(arena, base, slot)
        known, generated = arena[at + S_KNOWN], arena[at + S_GENERATED]
    left = rules.remaining_tokens(table[PREDICTED, row], generated, table[MAX_TOKENS, row], order.re_estimate)
    prefill_ns = arena[arena[G_PREFILL_NS] + known]
    cost_ns = prefill_ns + decode_ns(order.decode_ns, order.decode_token, prompt, left)
    return rules.goodput_key(
        table[ARRIVAL, row], now, generated, prefill_ns, cost_ns, arena[targets + TTFT], arena[targets + E2E]
    )


@kernel
def late_key_of(order, table, arena, base, row, slot, now):
    """Behind everybody."""
    return 3, now


@kernel
def look_again(order, table, arena, base, now):
    """Every so many steps."""
    welcome(order, table, arena, base)
    formed = arena[base + U_STEPS] + arena[base + R_STEPS]
    if formed - arena[base + R_MEMORY] >= order.review_steps:
        arena[base + R_MEMORY] = formed
        if waiting(arena, base) > 0:
            arena[base + R_TAIL] = now
            call_late(order, table, arena, base, True, now)


@kernel
def catch_up(order, table, arena, base, now):
    """The first of those who were in time at the last look is at the top."""
    take_back_in(order, table, arena, base, now)
    row, judged = head(arena, base), False
    while row >= 0 and not judged:
        at = entry_at(arena, row)
        judged = arena[at + Q_RANK] != IN_ORDER or arena[at + Q_LEVEL] != 0
        if not judged:
            level, value = key_of(order, table, arena, base, row, arena[at + Q_SLOT], arena[base + R_TAIL])
            judged = level == 0
        if not judged:
            pop(arena, base)
            push_key(arena, base, row, level, value)
            row = head(arena, base)


@kernel
def strode(order, arena, base, steps):
    """The looks at nobody that there were before each of these steps."""
    last = arena[base + U_STEPS] + arena[base + R_STEPS] - 1
    looks = (last - arena[base + R_MEMORY]) // order.review_steps
    arena[base + R_MEMORY] += looks * order.review_steps


page(GoodputFirst, key_of, late_key_of, look_again=look_again, catch_up=catch_up, strode=strode)
