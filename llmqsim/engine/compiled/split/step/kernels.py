"""A step of one replica of a split run: rows that it holds, and its beginning. engine/plan.py in arrays.

Arguments as in replica/kernels.py; step, where the step lies in the arena.
"""

from __future__ import annotations

from llmqsim.cost.kernels import prefill_attention_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.split.layout import *
from llmqsim.jit import kernel


@kernel
def step_at(arena, at, place):
    """Where step `place` (0: the oldest in flight) lies."""
    return arena[at + R_STEP] + ((arena[at + R_OLDEST] + place) & 1) * arena[at + R_STEP_WORDS]


@kernel
def at_most(arena, at, budget):
    """Most tokens that a request gets of what is left of a step's budget."""
    threshold = arena[at + R_THRESHOLD]
    return min(budget, threshold) if threshold > 0 else budget


@kernel
def run_on(arena, state, at, row):
    """A request joins the running list."""
    state[row, S_STAGE] = RUNNING
    arena[arena[at + R_RUN] + arena[at + R_RUNNING]] = row
    arena[at + R_RUNNING] += 1


@kernel
def move_on(arena, state, at, step, row, end):
    """A row of a step computes its request up to `end`."""
    computed = state[row, S_COMPUTED]
    if end == state[row, S_KNOWN]:
        arena[step + STEP + arena[step + T_SAMPLED]] = row
        arena[step + T_SAMPLED] += 1
        state[row, S_KNOWN] += 1
    if computed < state[row, S_HIGH_WATER]:
        arena[step + T_RECOMPUTED] += min(end, state[row, S_HIGH_WATER]) - computed
    state[row, S_COMPUTED] = end
    if arena[at + R_ENDS_AT] > 0:
        place = step + arena[at + R_ENDS_AT] + 2 * arena[step + T_ENDS]
        arena[place], arena[place + 1] = row, end
        arena[step + T_ENDS] += 1


@kernel
def grant_chunk(arena, state, costs, params, at, step, row, end):
    """Add a chunk to a step; returns the ns (float) of its attention."""
    tokens = end - state[row, S_COMPUTED]
    arena[step + T_CHUNKS] += 1
    arena[step + T_PREFILL] += tokens
    arena[step + T_CONTEXT] = max(arena[step + T_CONTEXT], end)
    move_on(arena, state, at, step, row, end)
    return prefill_attention_ns(costs, params, tokens, end)


@kernel
def grant(arena, state, costs, params, at, step, row, tokens):
    """Add a row to a step and move its request on; returns the ns (float) of its attention if it is a chunk."""
    computed = state[row, S_COMPUTED]
    if not rules.is_decode(computed, tokens):
        return grant_chunk(arena, state, costs, params, at, step, row, computed + tokens)
    arena[step + T_DECODES] += 1
    arena[step + T_KV] += computed + tokens
    move_on(arena, state, at, step, row, computed + tokens)
    return 0.0


@kernel
def ask(arena, rows, count):
    """The KV of these requests may begin to come."""
    for place in range(count):
        arena[arena[G_ASKED] + arena[G_ASKED_SIZE]] = arena[rows + place]
        arena[G_ASKED_SIZE] += 1


@kernel
def start(arena, at, step, now):
    """The GPU takes a step up; the transfers that were asked for when it was formed begin."""
    arena[step + T_START_NS] = now
    arena[step + T_END_NS] = now + arena[step + T_DURATION_NS]
    ask(arena, step + arena[at + R_LOADS_AT], arena[step + T_LOADS])
    arena[step + T_LOADS] = 0
