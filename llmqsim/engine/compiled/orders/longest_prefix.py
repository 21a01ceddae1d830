"""Longest cached prefix first: LongestPrefix of policies/ordering/cache.py in arrays."""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL, PROMPT_TOKENS
from llmqsim.engine.compiled.orders import LongestPrefix
from llmqsim.engine.compiled.orders.common import forget_late, page, sort_again, waiting, welcome
from llmqsim.engine.compiled.prefix.copies import hits
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.jit import kernel


@kernel
def key_of(order, table, run, arena, replica, row, slot, now):
    """(tokens not to be spared, arrival)."""
    if replica.memory != 0:
        return 0, table[ARRIVAL, row]
    known = request_at(arena, replica.slots, slot).known_tokens if slot >= 0 else table[PROMPT_TOKENS, row]
    found, _ = hits(run, arena, replica, slot, row, known)
    return -found * run.block_size, table[ARRIVAL, row]


@kernel
def late_key_of(order, table, run, arena, replica, row, slot, now):
    """Behind all that have no hit."""
    return 1, now


@kernel
def look_again(order, table, run, arena, replica, now):
    """At every step; replica.memory: is it first come, first served now, since so many wait?

    As they came, or with nothing cached, everybody stands where he belongs already.
    """
    welcome(order, table, run, arena, replica)
    in_turn, many = replica.memory != 0, waiting(replica) > order.most_waiting
    replica.memory = many
    if not ((in_turn and many) or run.caching == 0) or replica.late >= 0:
        forget_late(run, arena, replica)
        sort_again(order, table, run, arena, replica, now)


@kernel
def strode(order, run, arena, replica, steps):
    """Nobody waited."""
    replica.memory = 0


page(LongestPrefix, key_of, late_key_of, look_again=look_again, strode=strode)
