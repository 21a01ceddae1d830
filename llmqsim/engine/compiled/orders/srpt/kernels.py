"""Shortest remaining processing time: Srpt of policies/ordering/size.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.blocks.kernels import slot_of
from llmqsim.engine.compiled.columns import ARRIVAL, MAX_TOKENS, PREDICTED, PROMPT_TOKENS
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import Srpt
from llmqsim.engine.compiled.orders.kernels import page, strides_always
from llmqsim.jit import kernel
from llmqsim.policies import rules


@kernel
def aged_size(order, table, arena, base, row, slot):
    """What is left of a request, in ns of ageing."""
    known, computed, generated = table[PROMPT_TOKENS, row], 0, 0
    if slot >= 0:
        at = slot_of(arena, base, slot)
        known, computed, generated = arena[at + S_KNOWN], arena[at + S_COMPUTED], arena[at + S_GENERATED]
    left = rules.remaining_tokens(table[PREDICTED, row], generated, table[MAX_TOKENS, row], order.re_estimate)
    return rules.aged_ns(rules.remaining_size(left, known, computed, order.by_total), order.per_unit_ns)


@kernel
def key_of(order, table, arena, base, row, slot, now):
    """(0, size, less its age)."""
    size = aged_size(order, table, arena, base, row, slot)
    return 0, size + (table[ARRIVAL, row] if order.per_unit_ns > 0 else 0)


@kernel
def late_key_of(order, table, arena, base, row, slot, now):
    """(0, size and now)."""
    return 0, aged_size(order, table, arena, base, row, slot) + now


page(Srpt, key_of, late_key_of, may_stride=strides_always)
