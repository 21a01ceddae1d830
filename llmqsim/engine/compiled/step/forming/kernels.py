"""A step is formed, priced and put in line for the GPU.

Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.cost.kernels import step_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import draft_with
from llmqsim.engine.compiled.books.kernels import all_waiting, look, tally
from llmqsim.engine.compiled.layout import *  # names of words, nothing else
from llmqsim.engine.compiled.orders import catch_up, look_again, ran
from llmqsim.engine.compiled.step.rows.kernels import attention, step_at
from llmqsim.engine.compiled.swap.kernels import with_copies
from llmqsim.jit import kernel


@kernel
def form(batcher, table, arena, costs, params, base, now):
    """Decide the next step's batch; False when nobody can have a token."""
    tally(arena, base, now)
    look(table, arena, base, now)
    look_again(batcher.order, table, arena, base, now)
    step = step_at(arena, base, arena[base + R_STEPS])
    again = True
    while again:
        clear(arena, step)
        arena[step + T_BUDGET] = arena[G_BUDGET]
        arena[base + R_RETRY_NS] = NEVER
        draft_with(batcher, table, arena, costs, params, base, step, now)
        rows = arena[step + T_DECODES] + arena[step + T_CHUNKS]
        # who asked for memory gave way himself: the others can go on with it
        again = arena[step + T_PREEMPTED] != 0 and rows == 0 and arena[base + R_STEPS] == 0
    arena[base + R_BLOCKED_BY] = rules.WAIT_KV if arena[step + T_PREEMPTED] != 0 else arena[step + T_BLOCKED_BY]
    note_peaks(arena, base)
    note_state(arena, base, step)
    catch_up(batcher.order, table, arena, base, now)
    if rows == 0:
        return False
    idle = arena[step + T_IDLE]
    running = arena[base + R_RUNNING] + arena[base + R_ENDED]
    attention_ns = attention(arena, costs, params, step)
    arena[step + T_RUNNING] = running
    duration_ns = step_ns(
        costs,
        params,
        arena[step + T_DECODES] + idle,
        read_kv(arena, base, arena[step + T_KV] + arena[step + T_IDLE_KV], arena[step + T_DECODES] + idle),
        arena[step + T_PREFILL] + arena[step + T_PADDING],
        arena[step + T_CHUNKS],
        attention_ns,
        arena[step + T_SAMPLED] + idle,
        running,
    )
    arena[step + T_DURATION_NS] = with_copies(arena, costs, step, duration_ns)
    start_cold(arena, base, step)
    arena[step + T_DURATION_NS] = max(1, arena[step + T_DURATION_NS] - arena[step + T_SAVED_NS])
    queue_up(arena, base, step, now)
    ran(batcher.order, table, arena, base, step, now)
    return True


@kernel
def start_cold(arena, base, step):
    """A server that has just started takes longer over its first steps with a prefill chunk."""
    if arena[base + R_COLD] > 0 and arena[step + T_CHUNKS] > 0:
        arena[base + R_COLD] -= 1
        arena[step + T_DURATION_NS] += arena[G_COLD_NS]


@kernel
def read_kv(arena, base, kv, decodes):
    """KV tokens that the decodes of a step, with `kv` tokens of context, bring from memory."""
    repeated = arena[base + R_REPEATED] * arena[G_BLOCK_SIZE]
    return rules.read_kv_tokens(kv, decodes, repeated, arena[G_CACHED_PERCENT])


@kernel
def clear(arena, step):
    """Begin a new step."""
    for word in range(STEP):
        arena[step + word] = 0


@kernel
def note_peaks(arena, base):
    """Most slots and blocks held, and most who wait, after forming."""
    arena[base + U_WAITING_PEAK] = max(arena[base + U_WAITING_PEAK], all_waiting(arena, base))
    arena[base + U_RUNNING_PEAK] = max(arena[base + U_RUNNING_PEAK], arena[base + R_RUNNING])
    held = arena[base + R_USABLE_BLOCKS] - arena[base + R_FREE_BLOCKS]
    arena[base + U_BLOCKS_PEAK] = max(arena[base + U_BLOCKS_PEAK], held)


@kernel
def note_state(arena, base, step):
    """For the log: who waits, and what is held, now that the step is formed."""
    arena[step + T_WAITING] = all_waiting(arena, base)
    arena[step + T_BLOCKS] = arena[base + R_USABLE_BLOCKS] - arena[base + R_FREE_BLOCKS]


@kernel
def queue_up(arena, base, step, now):
    """A step has been formed: the GPU takes it up at once or after the one in flight."""
    arena[base + R_LONGEST_NS] = max(arena[base + R_LONGEST_NS], arena[step + T_DURATION_NS])
    if arena[G_STAGES] > 1:
        enter_pipeline(arena, base, step, now)
    elif arena[base + R_STEPS] == 0:
        start(arena, step, now)
    arena[base + R_STEPS] += 1


@kernel
def enter_pipeline(arena, base, step, now):
    """It starts when the first stage is free, and leaves the last no sooner than a stage after the step before."""
    stage_ns = -(-arena[step + T_DURATION_NS] // arena[G_STAGES])
    begin = max(now, arena[base + R_STAGE_FREE_NS])
    start(arena, step, begin)
    if arena[base + R_STEPS] > 0:
        before = step_at(arena, base, arena[base + R_STEPS] - 1)
        arena[step + T_END_NS] = max(arena[step + T_END_NS], arena[before + T_END_NS] + stage_ns)
    arena[base + R_STAGE_FREE_NS] = begin + stage_ns


@kernel
def start(arena, step, now):
    """The GPU takes a step up."""
    arena[step + T_START_NS] = now
    arena[step + T_END_NS] = now + arena[step + T_DURATION_NS]
