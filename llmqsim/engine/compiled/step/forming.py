"""A step is formed, priced and put in line for the GPU.

Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.cost.kernels import step_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.batchers import draft_with
from llmqsim.engine.compiled.books import all_waiting, look, tally
from llmqsim.engine.compiled.orders import catch_up, look_again, ran
from llmqsim.engine.compiled.step.rows import attention, step_in_flight
from llmqsim.engine.compiled.swap import with_copies
from llmqsim.engine.compiled.world.limits import NEVER
from llmqsim.engine.compiled.world.record import erase
from llmqsim.jit import kernel


@kernel
def form(batcher, table, run, arena, costs, params, replica, now):
    """Decide the next step's batch; False when nobody can have a token."""
    tally(replica, now)
    look(table, run, arena, replica, now)
    look_again(batcher.order, table, run, arena, replica, now)
    step = step_in_flight(run, arena, replica, replica.steps)
    again = True
    while again:
        clear(step)
        step.budget = run.budget
        replica.retry_ns = NEVER
        draft_with(batcher, table, run, arena, costs, params, replica, step, now)
        rows = step.decodes + step.chunks
        # who asked for memory gave way himself: the others can go on with it
        again = step.preempted != 0 and rows == 0 and replica.steps == 0
    replica.blocked_by = rules.WAIT_KV if step.preempted != 0 else step.blocked_by
    note_peaks(replica)
    note_state(replica, step)
    catch_up(batcher.order, table, run, arena, replica, now)
    if rows == 0:
        return False
    idle = step.idle_rows
    running = replica.running + replica.ended
    attention_ns = attention(run, arena, costs, params, step)
    step.running = running
    duration_ns = step_ns(
        costs,
        params,
        step.decodes + idle,
        read_kv(run, replica, step.kv_tokens + step.idle_kv_tokens, step.decodes + idle),
        step.prefill_tokens + step.padding_tokens,
        step.chunks,
        attention_ns,
        step.sampled + idle,
        running,
    )
    step.duration_ns = with_copies(run, costs, step, duration_ns)
    start_cold(run, replica, step)
    step.duration_ns = max(1, step.duration_ns - step.saved_ns)
    queue_up(run, arena, replica, step, now)
    ran(batcher.order, table, run, arena, replica, step, now)
    return True


@kernel
def start_cold(run, replica, step):
    """A server that has just started takes longer over its first steps with a prefill chunk."""
    if replica.cold_steps > 0 and step.chunks > 0:
        replica.cold_steps -= 1
        step.duration_ns += run.cold_ns


@kernel
def read_kv(run, replica, kv, decodes):
    """KV tokens that the decodes of a step, with `kv` tokens of context, bring from memory."""
    repeated = replica.repeated * run.block_size
    return rules.read_kv_tokens(kv, decodes, repeated, run.cached_percent)


@kernel
def clear(step):
    """Begin a new step."""
    samples = step.samples
    erase(step)
    step.samples = samples


@kernel
def note_peaks(replica):
    """Most slots and blocks held, and most who wait, after forming."""
    replica.usage.waiting_peak = max(replica.usage.waiting_peak, all_waiting(replica))
    replica.usage.running_peak = max(replica.usage.running_peak, replica.running)
    held = replica.usable_blocks - replica.free_blocks
    replica.usage.kv_blocks_peak = max(replica.usage.kv_blocks_peak, held)


@kernel
def note_state(replica, step):
    """For the log: who waits, and what is held, now that the step is formed."""
    step.waiting = all_waiting(replica)
    step.kv_blocks = replica.usable_blocks - replica.free_blocks


@kernel
def queue_up(run, arena, replica, step, now):
    """A step has been formed: the GPU takes it up at once or after the one in flight."""
    replica.longest_ns = max(replica.longest_ns, step.duration_ns)
    if run.stages > 1:
        enter_pipeline(run, arena, replica, step, now)
    elif replica.steps == 0:
        start(step, now)
    replica.steps += 1


@kernel
def enter_pipeline(run, arena, replica, step, now):
    """It starts when the first stage is free, and leaves the last no sooner than a stage after the step before."""
    stage_ns = -(-step.duration_ns // run.stages)
    begin = max(now, replica.stage_free_ns)
    start(step, begin)
    if replica.steps > 0:
        before = step_in_flight(run, arena, replica, replica.steps - 1)
        step.end_ns = max(step.end_ns, before.end_ns + stage_ns)
    replica.stage_free_ns = begin + stage_ns


@kernel
def start(step, now):
    """The GPU takes a step up."""
    step.start_ns = now
    step.end_ns = now + step.duration_ns
