"""Who can still meet its SLO goes first: GoodputFirst of policies/ordering/deadline.py in arrays.

While a request waits its key changes once at most, from "it can" to "it can't", which only sends it back. So whoever comes
to the top with a key from before the last look is judged as of then, and nobody else is. `memory` : how many steps had been
formed at the last look, `tail` : when it was. Those that went behind all are judged anew at each look, since a token of
theirs may still be under way.
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL, CLASS_ID, MAX_TOKENS, PREDICTED, PROMPT_TOKENS
from llmqsim.engine.compiled.orders import GoodputFirst
from llmqsim.engine.compiled.orders.common import call_late, page, take_back_in, waiting, welcome
from llmqsim.engine.compiled.queue import head, pop, push_key
from llmqsim.engine.compiled.world.queue import IN_ORDER, entry_at
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.engine.compiled.world.run import target_at
from llmqsim.engine.costs.kernels import decode_ns
from llmqsim.jit import kernel
from llmqsim.policies import rules


@kernel
def key_of(order, table, run, arena, replica, row, slot, now):
    """(can it, no target, can't; cost, or arrival)."""
    targets, prompt = target_at(arena, run.targets, table[CLASS_ID, row]), table[PROMPT_TOKENS, row]
    known, generated = prompt, 0
    if slot >= 0:
        request = request_at(arena, replica.slots, slot)
        known, generated = request.known_tokens, request.generated_tokens
    left = rules.remaining_tokens(table[PREDICTED, row], generated, table[MAX_TOKENS, row], order.re_estimate)
    prefill_ns = arena[run.prefill_ns + known]
    cost_ns = prefill_ns + decode_ns(order.decode_ns, order.decode_token, prompt, left)
    return rules.goodput_key(table[ARRIVAL, row], now, generated, prefill_ns, cost_ns, targets.ttft_ns, targets.e2e_ns)


@kernel
def late_key_of(order, table, run, arena, replica, row, slot, now):
    """Behind everybody."""
    return 3, now


@kernel
def look_again(order, table, run, arena, replica, now):
    """Every so many steps."""
    welcome(order, table, run, arena, replica)
    formed = replica.usage.steps + replica.steps
    if formed - replica.memory >= order.review_steps:
        replica.memory = formed
        if waiting(replica) > 0:
            replica.tail = now
            call_late(order, table, run, arena, replica, True, now)


@kernel
def catch_up(order, table, run, arena, replica, now):
    """The first of those who were in time at the last look is at the top."""
    take_back_in(order, table, run, arena, replica, now)
    row, judged = head(run, arena, replica), False
    while row >= 0 and not judged:
        entry = entry_at(arena, run.queue, row)
        judged = entry.rank != IN_ORDER or entry.level != 0
        if not judged:
            level, value = key_of(order, table, run, arena, replica, row, entry.slot, replica.tail)
            judged = level == 0
        if not judged:
            pop(run, arena, replica)
            push_key(run, arena, replica, row, level, value)
            row = head(run, arena, replica)


@kernel
def strode(order, run, arena, replica, steps):
    """The looks at nobody that there were before each of these steps."""
    last = replica.usage.steps + replica.steps - 1
    looks = (last - replica.memory) // order.review_steps
    replica.memory += looks * order.review_steps


page(GoodputFirst, key_of, late_key_of, look_again=look_again, catch_up=catch_up, strode=strode)
