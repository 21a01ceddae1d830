"""A step of one replica of a split run ends: its tokens are delivered, and who has all of them leaves.

What engine/reference.py and prefill.py do, in arrays. Arguments as in replica/kernels.py.
"""

from __future__ import annotations

from llmqsim.cost.kernels import outside_box, padded_tokens
from llmqsim.engine.compiled.books import add, gap_bin
from llmqsim.engine.compiled.split.blocks.kernels import release
from llmqsim.engine.compiled.split.layout import *  # names of words, nothing else
from llmqsim.engine.compiled.split.queue.kernels import tally
from llmqsim.engine.compiled.split.step.kernels import start, step_at
from llmqsim.engine.compiled.world.books import whole_at
from llmqsim.jit import kernel


@kernel
def count_gaps(arena, gaps, class_id, gap, times):
    """Count equal gaps between two tokens."""
    if times > 0:
        gaps[class_id, gap_bin(gap)] += times
        sums = arena[G_GAP_SUMS] + class_id * 3
        add(whole_at(arena, sums), gap * times)
        arena[sums + 2] = max(arena[sums + 2], gap)


@kernel
def unstack(arena, at, row):
    """A request that was preempted waits no more."""
    stack, kept = arena[at + R_STACK], 0
    for place in range(arena[at + R_PREEMPTED]):
        if arena[stack + place] != row:
            arena[stack + kept] = arena[stack + place]
            kept += 1
    arena[at + R_PREEMPTED] = kept


@kernel
def end_request(arena, state, at, row, now):
    """A request has all its tokens: its blocks are free."""
    if state[row, S_STAGE] == WAITING:
        state[row, S_WAIT_PREEMPTED_NS] += now - state[row, S_PREEMPTED_NS]
        unstack(arena, at, row)
    full = state[row, S_COMPUTED] // arena[at + R_BLOCK_SIZE]
    release(arena, state, at, state[row, S_HELD], min(full, state[row, S_HELD]), OF_NOBODY)
    state[row, S_HELD] = 0
    state[row, S_STAGE] = FINISHED
    state[row, S_FINISH_NS] = now
    arena[at + R_OUTSTANDING] -= 1


@kernel
def lend(arena, state, at, row, now):
    """A prompt is computed for another replica: its blocks stay held."""
    if arena[G_FIRST_TOKEN] != FROM_PREFILL:
        state[row, S_FIRST_TOKEN_NS] = state[row, S_LAST_NS] = -1
        state[row, S_GENERATED] = 0
    state[row, S_STAGE] = LENT
    arena[at + R_LENT] += 1
    arena[at + R_OUTSTANDING] -= 1


@kernel
def close_ranks(arena, state, at):
    """Take those who have left off the running list; the order of the others stays."""
    run, kept = arena[at + R_RUN], 0
    for place in range(arena[at + R_RUNNING]):
        row = arena[run + place]
        if state[row, S_STAGE] == RUNNING:
            arena[run + kept] = row
            kept += 1
    arena[at + R_RUNNING] = kept


@kernel
def leave(arena, state, at, row, now):
    """A request has all its tokens, or its prompt is computed for another replica."""
    ends = state[row, S_GENERATED] == state[row, S_OUTPUT]
    if ends and (arena[at + R_DECODES] != 0 or arena[G_FIRST_TOKEN] != FROM_DECODE):
        end_request(arena, state, at, row, now)
    else:
        lend(arena, state, at, row, now)


@kernel
def commit(arena, state, gaps, log, params, at):
    """The oldest step ends: its tokens are delivered, and who has all of them leaves. Returns where its rows lie."""
    step = step_at(arena, at, 0)
    now = arena[step + T_END_NS]
    decodes = arena[at + R_DECODES] != 0
    tally(arena, at, now)
    arena[at + R_STEPS] -= 1
    arena[at + R_OLDEST] ^= 1
    left = 0
    class_id, same_gap, times = 0, -1, 0  # most rows of a step have the same gap, and are counted together
    for place in range(arena[step + T_SAMPLED]):
        row = arena[step + STEP + place]
        stage = state[row, S_STAGE]
        if stage == FINISHED:
            arena[at + U_WASTED] += 1
            continue
        if stage == WAITING and not decodes:  # its KV went while its token was under way: once more
            state[row, S_KNOWN] -= 1
            continue
        if state[row, S_GENERATED] > 0:
            gap = now - state[row, S_LAST_NS]
            if gap != same_gap or state[row, S_CLASS] != class_id:
                count_gaps(arena, gaps, class_id, same_gap, times)
                class_id, same_gap, times = state[row, S_CLASS], gap, 0
            times += 1
            state[row, S_MAX_GAP_NS] = max(state[row, S_MAX_GAP_NS], gap)
        else:
            state[row, S_FIRST_TOKEN_NS] = now
        state[row, S_LAST_NS] = now
        state[row, S_GENERATED] += 1
        if not decodes or state[row, S_GENERATED] == state[row, S_OUTPUT]:
            leave(arena, state, at, row, now)
            left += 1
    count_gaps(arena, gaps, class_id, same_gap, times)
    arena[step + T_LEFT] = left
    if left > 0:
        close_ranks(arena, state, at)
    book_step(arena, log, params, at, step, now)
    if arena[at + R_STEPS] > 0:
        start(arena, at, step_at(arena, at, 0), now)
    arena[at + R_FORM_NS] = now
    return step


@kernel
def book_step(arena, log, params, at, step, now):
    """Add an ended step to the usage, and to the log if one is kept."""
    decodes, prefill = arena[step + T_DECODES], arena[step + T_PREFILL]
    tokens = decodes + prefill
    arena[at + U_STEPS] += 1
    arena[at + U_TOKENS] += tokens
    arena[at + U_RECOMPUTED] += arena[step + T_RECOMPUTED]
    arena[at + U_CACHED] += arena[step + T_CACHED]
    arena[at + U_PADDED] += padded_tokens(params, tokens, arena[step + T_CHUNKS]) - tokens
    arena[at + U_END_NS] = now
    left = outside_box(params, decodes, arena[step + T_KV], prefill, arena[step + T_CONTEXT])
    if left > 0:
        for axis in range(4):
            arena[at + U_OUTSIDE + axis] += left >> axis & 1
    if arena[G_LOG_ROWS] > 0:
        entry = arena[G_LOGGED]
        arena[G_LOGGED] += 1
        log[entry, 0] = arena[at + R_INDEX]
        log[entry, 1] = arena[step + T_START_NS]
        log[entry, 2] = now
        log[entry, 3] = decodes
        log[entry, 4] = prefill
        log[entry, 5] = arena[step + T_RUNNING]
        log[entry, 6] = arena[step + T_WAITING]
        log[entry, 7] = arena[step + T_BLOCKS]
