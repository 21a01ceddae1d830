"""Shortest remaining processing time: Srpt of policies/ordering/size.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL, MAX_TOKENS, PREDICTED, PROMPT_TOKENS
from llmqsim.engine.compiled.orders import Srpt
from llmqsim.engine.compiled.orders.common import page, strides_always
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.jit import kernel
from llmqsim.policies import rules


@kernel
def aged_size(order, table, arena, replica, row, slot):
    """What is left of a request, in ns of ageing."""
    known, computed, generated = table[PROMPT_TOKENS, row], 0, 0
    if slot >= 0:
        request = request_at(arena, replica.slots, slot)
        known, computed, generated = request.known_tokens, request.computed_tokens, request.generated_tokens
    left = rules.remaining_tokens(table[PREDICTED, row], generated, table[MAX_TOKENS, row], order.re_estimate)
    return rules.aged_ns(rules.remaining_size(left, known, computed, order.by_total), order.per_unit_ns)


@kernel
def key_of(order, table, run, arena, replica, row, slot, now):
    """(0, size, less its age)."""
    size = aged_size(order, table, arena, replica, row, slot)
    return 0, size + (table[ARRIVAL, row] if order.per_unit_ns > 0 else 0)


@kernel
def late_key_of(order, table, run, arena, replica, row, slot, now):
    """(0, size and now)."""
    return 0, aged_size(order, table, arena, replica, row, slot) + now


page(Srpt, key_of, late_key_of, may_stride=strides_always)
