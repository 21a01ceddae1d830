"""Shortest remaining processing time: Srpt of policies/ordering/size.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import Kernels, Srpt, made_of
from llmqsim.engine.compiled.orders.kernels import (
    does_not_note_joins,
    does_not_note_leaves,
    does_not_note_steps,
    does_not_note_strides,
    only_welcomes,
    strides_always,
    take_back_in,
)
from llmqsim.engine.compiled.blocks.kernels import slot_of
from llmqsim.jit import kernel
from llmqsim.policies import rules
from llmqsim.requests import INDEX

ARRIVAL = INDEX["arrival_ns"]
PROMPT_TOKENS = INDEX["prompt_tokens"]
MAX_TOKENS = INDEX["max_tokens"]
PREDICTED = INDEX["predicted_tokens"]


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


made_of(
    Srpt,
    Kernels(
        key_of,
        late_key_of,
        does_not_note_joins,
        does_not_note_leaves,
        only_welcomes,
        take_back_in,
        does_not_note_steps,
        strides_always,
        does_not_note_strides,
    ),
)
