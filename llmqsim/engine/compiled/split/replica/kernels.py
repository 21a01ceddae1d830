"""Forming the steps of one replica of a split run, request by request.

What engine/reference.py and draft.py do, in arrays. Arguments that all share: arena int64[:] and state
int64[requests, S_WORDS] (layout.py); costs float64[:] and params int64[:], the step costs; at, where the replica begins in
the arena.
"""

from __future__ import annotations

from llmqsim.cost.kernels import step_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.split.blocks.kernels import release, take
from llmqsim.engine.compiled.split.entry.kernels import admit_waiting, bring_in
from llmqsim.engine.compiled.split.layout import *  # names of words, nothing else
from llmqsim.engine.compiled.split.queue.kernels import all_waiting, look, tally
from llmqsim.engine.compiled.split.step.kernels import ask, at_most, grant, start, step_at
from llmqsim.jit import kernel


@kernel
def preempt_newest(arena, state, at, now):
    """The request that was admitted last loses its blocks and waits at the front; returns it."""
    arena[at + R_RUNNING] -= 1
    row = arena[arena[at + R_RUN] + arena[at + R_RUNNING]]
    release(arena, state, at, state[row, S_HELD], state[row, S_COMPUTED] // arena[at + R_BLOCK_SIZE], row)
    state[row, S_HELD] = 0
    state[row, S_HIGH_WATER] = max(state[row, S_HIGH_WATER], state[row, S_COMPUTED])
    state[row, S_COMPUTED] = 0
    state[row, S_STAGE] = WAITING
    state[row, S_PREEMPTED_NS] = now
    state[row, S_PREEMPTIONS] += 1
    arena[arena[at + R_STACK] + arena[at + R_PREEMPTED]] = row
    arena[at + R_PREEMPTED] += 1
    arena[at + U_PREEMPTIONS] += 1
    return row


@kernel
def grow_running(arena, state, costs, params, at, step, now):
    """The running pass, in admission order: (what is left of the budget, ns of attention, did anyone lose blocks?)."""
    budget, size, attention_ns = arena[at + R_BUDGET], arena[at + R_BLOCK_SIZE], 0.0
    preempted = False
    place = 0
    while place < arena[at + R_RUNNING] and budget > 0:
        row = arena[arena[at + R_RUN] + place]
        computed = state[row, S_COMPUTED]
        want = rules.want_tokens(
            state[row, S_KNOWN], computed, state[row, S_PROMPT], state[row, S_MAX], at_most(arena, at, budget)
        )
        if want > 0:
            if computed + want > state[row, S_HELD] * size:  # seldom, and a division is what costs most here
                need = rules.new_blocks(computed, want, state[row, S_HELD], size)
                victim = -1
                while need > arena[at + R_FREE] and victim != row:
                    victim = preempt_newest(arena, state, at, now)
                    preempted = True
                if victim == row:
                    break
                take(arena, state, at, need)
                state[row, S_HELD] += need
            attention_ns += grant(arena, state, costs, params, at, step, row, want)
            budget -= want
        place += 1
    return budget, attention_ns, preempted


@kernel
def is_empty(arena, step):
    """Does a step hold no row?"""
    return arena[step + T_DECODES] + arena[step + T_CHUNKS] == 0


@kernel
def form(arena, state, marks, resumed, costs, params, at, now):
    """Decide the next step's batch; False when nobody can have a token."""
    tally(arena, at, now)
    look(arena, state, at, now)
    step = step_at(arena, at, arena[at + R_STEPS])
    again = True
    attention_ns = 0.0
    while again:
        for word in range(STEP):
            arena[step + word] = 0
        to_begin = arena[at + R_TO_BEGIN]
        budget, attention_ns, preempted = grow_running(arena, state, costs, params, at, step, now)
        blocked_by = rules.WAIT_KV
        if not preempted:
            if arena[at + R_LOADED] > 0:
                budget, attention_ns = bring_in(
                    arena, state, costs, params, at, step, budget, attention_ns, marks, resumed, now
                )
            blocked_by, attention_ns = admit_waiting(arena, state, costs, params, at, step, budget, attention_ns, now)
        if is_empty(arena, step) and arena[at + R_LOADED] > 0:
            budget, attention_ns = bring_in(
                arena, state, costs, params, at, step, budget, attention_ns, marks, resumed, now
            )
        began = arena[at + R_TO_BEGIN] > to_begin
        again = is_empty(arena, step) and (began or (preempted and arena[at + R_STEPS] == 0))
    arena[at + R_BLOCKED_BY] = blocked_by
    arena[step + T_WAITING] = all_waiting(arena, at)
    arena[step + T_BLOCKS] = arena[at + R_USABLE] - arena[at + R_FREE]
    arena[at + U_RUNNING_PEAK] = max(arena[at + U_RUNNING_PEAK], arena[at + R_RUNNING])
    arena[at + U_WAITING_PEAK] = max(arena[at + U_WAITING_PEAK], arena[step + T_WAITING])
    arena[at + U_BLOCKS_PEAK] = max(arena[at + U_BLOCKS_PEAK], arena[step + T_BLOCKS])
    if is_empty(arena, step):
        return False
    price(arena, costs, params, at, step, attention_ns)
    return True


@kernel
def price(arena, costs, params, at, step, attention_ns):
    """How long a formed step takes, and what begins with it."""
    arena[step + T_RUNNING] = arena[at + R_RUNNING]
    duration = step_ns(
        costs,
        params,
        arena[step + T_DECODES],
        arena[step + T_KV],
        arena[step + T_PREFILL],
        arena[step + T_CHUNKS],
        attention_ns,
        arena[step + T_SAMPLED],
        arena[at + R_RUNNING],
    )
    if arena[step + T_CHUNKS] > 0 and arena[at + R_COLD_STEPS] > 0:
        arena[at + R_COLD_STEPS] -= 1
        duration += arena[at + R_COLD_STEP_NS]
    arena[step + T_DURATION_NS] = duration
    arena[G_LONGEST_NS] = max(arena[G_LONGEST_NS], duration)
    loads = step + arena[at + R_LOADS_AT]
    for place in range(arena[at + R_TO_BEGIN]):
        arena[loads + place] = arena[arena[at + R_TO_BEGIN_ROWS] + place]
    arena[step + T_LOADS] = arena[at + R_TO_BEGIN]
    arena[at + R_TO_BEGIN] = 0


@kernel
def form_ahead(arena, state, marks, resumed, costs, params, at, now):
    """Form as many steps as in_flight allows; False: a replica with requests can't form a step, nor will it ever."""
    arena[at + R_FORM_NS] = NEVER
    while arena[at + R_STEPS] < arena[at + R_IN_FLIGHT]:
        if not form(arena, state, marks, resumed, costs, params, at, now):
            ask(arena, arena[at + R_TO_BEGIN_ROWS], arena[at + R_TO_BEGIN])
            arena[at + R_TO_BEGIN] = 0
            break
        if arena[at + R_STEPS] == 0:
            start(arena, at, step_at(arena, at, 0), now)
        arena[at + R_STEPS] += 1
    arena[G_FORMED] += 1
    arena[at + R_AWAITED_SINCE] = arena[G_FORMED]
    present = arena[at + R_RUNNING] + arena[at + R_QUEUED] + arena[at + R_PREEMPTED] + arena[at + R_INCOMING]
    expects = arena[at + R_LENT] + arena[at + R_LOADING]
    return arena[at + R_STEPS] > 0 or present == 0 or expects > 0
