"""Longest cached prefix first: LongestPrefix of policies/ordering/cache.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.blocks.kernels import slot_of
from llmqsim.engine.compiled.columns import ARRIVAL, PROMPT_TOKENS
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import LongestPrefix
from llmqsim.engine.compiled.orders.kernels import forget_late, page, sort_again, waiting, welcome
from llmqsim.engine.compiled.prefix.kernels import hits
from llmqsim.jit import kernel


@kernel
def key_of(order, table, arena, base, row, slot, now):
    """(tokens not to be spared, arrival)."""
    if arena[base + R_MEMORY] != 0:
        return 0, table[ARRIVAL, row]
    known = arena[slot_of(arena, base, slot) + S_KNOWN] if slot >= 0 else table[PROMPT_TOKENS, row]
    found, _ = hits(arena, base, slot, row, known)
    return -found * arena[G_BLOCK_SIZE], table[ARRIVAL, row]


@kernel
def late_key_of(order, table, arena, base, row, slot, now):
    """Behind all that have no hit."""
    return 1, now


@kernel
def look_again(order, table, arena, base, now):
    """At every step; R_MEMORY: is it first come, first served now, since so many wait?

    As they came, or with nothing cached, everybody stands where he belongs already.
    """
    welcome(order, table, arena, base)
    in_turn, many = arena[base + R_MEMORY] != 0, waiting(arena, base) > order.most_waiting
    arena[base + R_MEMORY] = many
    if not ((in_turn and many) or arena[G_CACHING] == 0) or arena[base + R_LATE] >= 0:
        forget_late(arena, base)
        sort_again(order, table, arena, base, now)


@kernel
def strode(order, arena, base, steps):
    """Nobody waited."""
    arena[base + R_MEMORY] = 0


page(LongestPrefix, key_of, late_key_of, look_again=look_again, strode=strode)
