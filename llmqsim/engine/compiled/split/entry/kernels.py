"""Who enters a step of one replica of a split run: those whose KV has come, and those who wait.

What engine/draft.py (`admit`) and incoming.py do, in arrays. Arguments as in replica/kernels.py.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.split.blocks.kernels import come_back, hit_blocks, take
from llmqsim.engine.compiled.split.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.split.queue.kernels import leave_queue
from llmqsim.engine.compiled.split.step.kernels import at_most, grant, run_on
from llmqsim.jit import kernel


@kernel
def bring_in(arena, state, costs, params, at, step, budget, attention_ns, marks, resumed, now):
    """Who has his KV here enters, in the order of taking blocks: (what is left of the budget, ns of attention)."""
    rows, kept, stopped = arena[at + R_INCOMING_ROWS], 0, False
    for place in range(arena[at + R_INCOMING]):
        row = arena[rows + place]
        enters = state[row, S_COMING] == LOADED and not stopped
        if enters:
            stopped = rules.has_place(arena[at + R_RUNNING], arena[at + R_MAX_NUM_SEQS], budget) != rules.ADMITTED
        if not enters or stopped:
            arena[rows + kept] = row
            kept += 1
            continue
        arena[at + R_LOADED] -= 1
        arena[at + R_HELD_INCOMING] -= state[row, S_HELD]
        state[row, S_COMING] = OWN
        run_on(arena, state, at, row)
        marks[resumed, row] = now
        want = min(state[row, S_KNOWN] - state[row, S_COMPUTED], at_most(arena, at, budget))
        attention_ns += grant(arena, state, costs, params, at, step, row, want)
        budget -= want
    arena[at + R_INCOMING] = kept
    return budget, attention_ns


@kernel
def known_on_arrival(arena, state, row):
    """Tokens that are known of a request whose KV comes from elsewhere: its first one, too, unless decode makes it."""
    return state[row, S_PROMPT] + (arena[G_FIRST_TOKEN] != FROM_DECODE)


@kernel
def load_refused(arena, state, at, row):
    """May the head of a decode replica's queue take blocks for its KV? (what keeps it out or ADMITTED, blocks)."""
    size = arena[at + R_BLOCK_SIZE]
    need = rules.blocks_for(known_on_arrival(arena, state, row), size)
    others = arena[at + R_RUNNING] + arena[at + R_INCOMING]
    above = arena[at + R_WATERMARK] if others > 0 else 0
    above += others * arena[G_RESERVE_BLOCKS]
    if not rules.has_memory(need * size, 0, 0, size, arena[at + R_FREE], above):
        return rules.WAIT_KV, need
    if arena[at + R_INCOMING] > 0 and arena[G_MOST_WAITING] >= 0:
        if arena[at + R_HELD_INCOMING] + need > arena[G_MOST_WAITING]:
            return rules.WAIT_KV, need
    return rules.ADMITTED, need


@kernel
def take_load(arena, state, at, row, need):
    """It leaves the queue with its blocks; its transfer begins with the step that is being formed.

    Where KV is pushed its prompt is computed only then: it takes up what it waited for here when it comes back.
    """
    leave_queue(arena, state, at, row)
    take(arena, state, at, need)
    state[row, S_TAKEN] = need
    state[row, S_COMING] = LOADING
    if arena[G_TRANSFER] != PULL:
        for reason in range(4):
            state[row, S_WAITED + reason], state[row, S_WAIT + reason] = state[row, S_WAIT + reason], 0
    arena[arena[at + R_INCOMING_ROWS] + arena[at + R_INCOMING]] = row
    arena[at + R_INCOMING] += 1
    arena[at + R_LOADING] += 1
    arena[at + R_HELD_INCOMING] += need
    arena[arena[at + R_TO_BEGIN_ROWS] + arena[at + R_TO_BEGIN]] = row
    arena[at + R_TO_BEGIN] += 1


@kernel
def admission(arena, state, at, row, budget):
    """May one that computes its own KV enter? (what keeps it out or ADMITTED, its first tokens, blocks that it hits)."""
    size, known = arena[at + R_BLOCK_SIZE], state[row, S_KNOWN]
    hits = hit_blocks(arena, state, at, row)
    most = at_most(arena, at, budget)
    want = rules.first_tokens(known - hits * size, budget, most, arena[at + R_CHUNKED] != 0)
    if want == 0:
        return rules.WAIT_TOKEN_BUDGET, 0, 0
    must_fit = known if arena[at + R_WHOLE_PROMPT] != 0 else hits * size + want
    above = arena[at + R_WATERMARK] if arena[at + R_RUNNING] > 0 else 0
    if not rules.has_memory(must_fit, hits, hits, size, arena[at + R_FREE], above):
        return rules.WAIT_KV, 0, 0
    return rules.ADMITTED, want, hits


@kernel
def enter(arena, state, at, step, row, again, want, hits, now):
    """The head of the queue joins the running list with its first blocks. again : it was preempted."""
    if again:
        arena[at + R_PREEMPTED] -= 1
        state[row, S_WAIT_PREEMPTED_NS] += now - state[row, S_PREEMPTED_NS]
    else:
        leave_queue(arena, state, at, row)
    if state[row, S_FIRST_SCHEDULED_NS] < 0:
        state[row, S_FIRST_SCHEDULED_NS] = now
    run_on(arena, state, at, row)
    size = arena[at + R_BLOCK_SIZE]
    come_back(arena, state, at, row, hits)
    state[row, S_COMPUTED] = hits * size
    arena[step + T_CACHED] += hits * size
    state[row, S_HELD] = rules.blocks_for(hits * size + want, size)
    take(arena, state, at, state[row, S_HELD] - hits)


@kernel
def admit_waiting(arena, state, costs, params, at, step, budget, attention_ns, now):
    """The waiting pass, up to the first that may not enter: (what keeps it out, ns of attention)."""
    while arena[at + R_PREEMPTED] + arena[at + R_QUEUED] > 0:
        again = arena[at + R_PREEMPTED] > 0
        row = arena[arena[at + R_STACK] + arena[at + R_PREEMPTED] - 1] if again else arena[arena[at + R_HEAP]]
        refused_by = rules.has_place(arena[at + R_RUNNING], arena[at + R_MAX_NUM_SEQS], budget)
        if refused_by != rules.ADMITTED:
            return refused_by, attention_ns
        if arena[at + R_DECODES] != 0 and state[row, S_COMING] == EXPECTED:
            refused_by, need = load_refused(arena, state, at, row)
            if refused_by != rules.ADMITTED:
                return refused_by, attention_ns
            take_load(arena, state, at, row, need)
            continue
        refused_by, want, hits = admission(arena, state, at, row, budget)
        if refused_by != rules.ADMITTED:
            return refused_by, attention_ns
        enter(arena, state, at, step, row, again, want, hits, now)
        attention_ns += grant(arena, state, costs, params, at, step, row, want)
        budget -= want
    return rules.WAIT_STEP, attention_ns
