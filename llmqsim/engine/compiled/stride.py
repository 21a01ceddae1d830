"""A stride: steps of the group alone, formed and committed in one loop over local numbers.

While nobody prefills, nobody ends, nothing is delivered and the head of the queue can't enter, a step only looks its
duration up and counts. What the steps leave behind is written once, at the end. Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.cost.kernels import outside_box, padded_tokens, step_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.pool import take
from llmqsim.engine.compiled.books import add, all_waiting, gap_bin, look, tally
from llmqsim.engine.compiled.group.members import push_gap
from llmqsim.engine.compiled.orders import may_stride, strode
from llmqsim.engine.compiled.step.entry import admission, first_in_line
from llmqsim.engine.compiled.step.forming import note_peaks, read_kv
from llmqsim.engine.compiled.step.rows import step_in_flight
from llmqsim.engine.compiled.swap import first_may_return
from llmqsim.engine.compiled.world.limits import LONGEST_STEP, NEVER, NO_LIMIT
from llmqsim.engine.compiled.world.replica import SLOT_BITS
from llmqsim.engine.compiled.world.run import gap_sum_at
from llmqsim.jit import kernel
from llmqsim.records import GAP_BINS


@kernel
def is_group_alone(run, arena, replica):
    """Are the members all who run, in the step in flight too, with nothing new to look at and no log to keep?"""
    members = replica.members
    if replica.open == 0 or members == 0 or members != replica.running or members > run.budget:
        return False
    if replica.fresh > 0 or replica.steps != run.in_flight - 1 or run.log_rows > 0:
        return False
    step = step_in_flight(run, arena, replica, 0)
    return replica.steps == 0 or (step.decodes == members and step.sampled + step.gone + step.chunks == 0)


@kernel
def stays_out(batcher, table, run, arena, replica):
    """What keeps the head of the queue out (WAIT_STEP: nobody waits), ADMITTED if it may enter; for how many blocks taken.

    Who can't enter now can't before somebody ends: free blocks only become fewer, and so do cached ones. Each block that
    the head would have hit and that is reused makes it need one block less of those that are then one fewer. Only where
    the prompt must be whole may another reason keep it out then, and where the cache was filled beforehand or the host keeps what
    loses its place, it can lose blocks from the middle of what it would hit: for no block, then.
    """
    budget = run.budget - replica.members
    if replica.swapped > 0:
        return rules.ADMITTED if first_may_return(run, arena, replica, budget) else rules.WAIT_KV, NEVER
    if replica.preempted + replica.queued == 0:
        return rules.WAIT_STEP, NEVER
    slot, row, known = first_in_line(batcher, table, run, arena, replica, replica.form_ns)
    refused_by, _, hit = admission(run, arena, replica, slot, row, known, budget, NO_LIMIT, 0)
    can_lose = run.chunked == 0 or run.warm != 0 or run.host_blocks > 0
    if refused_by == rules.WAIT_KV and hit > 0 and can_lose:
        return refused_by, 0
    return refused_by, NEVER


@kernel
def stride(batcher, table, run, arena, costs, params, replica, commit_limit, form_limit):
    """Make steps of the group alone while they end by `commit_limit` and are formed before `form_limit`; say how many."""
    if (
        not is_group_alone(run, arena, replica)
        or replica.prefilling > 0
        or not may_stride(batcher.order, run, arena, replica)
    ):
        return 0
    blocked_by, most_taken = stays_out(batcher, table, run, arena, replica)
    if blocked_by == rules.ADMITTED:
        return 0
    began = now = replica.form_ns
    tally(replica, now)
    look(table, run, arena, replica, now)
    replica.blocked_by = blocked_by
    ahead = replica.steps  # 1: the step formed here is committed in the next round
    step = step_in_flight(run, arena, replica, 0)
    end, kv = step.end_ns, step.kv_tokens
    members, context, deliver_ns = replica.members, replica.context, replica.deliver_ns
    left = (arena[replica.ends] >> SLOT_BITS) - 1 - replica.usage.steps
    free, usable, block_size = replica.free_blocks, replica.usable_blocks, run.block_size
    residues, residue = replica.residues, -(replica.usage.steps + ahead) % block_size
    steps = taken = block_ns = worst = longest = duration = 0
    # what is delivered before a step ends must be in the queue by then
    last, limit = replica.last_commit_ns, min(commit_limit, deliver_ns)
    while steps < left and now < form_limit and now - began < LONGEST_STEP:
        need = arena[residues + residue]
        if need > min(free, most_taken) - taken or (ahead > 0 and end > limit):
            break
        duration = step_ns(costs, params, members, read_kv(run, replica, context, members), 0, 0, 0.0, members, members)
        if ahead == 0:
            end, kv = now + duration, context
            if end > limit:
                break
        taken += need
        block_ns += (end - now) * (usable - free + taken)
        gap = end - last
        count_gaps(run, arena, replica, gap)
        count_outside(params, replica, members, kv)
        worst, longest = max(worst, gap), max(longest, duration)
        residue = residue - 1 if residue > 0 else block_size - 1
        last = now = end
        if ahead > 0:
            end, kv = now + duration, context
        context += members
        steps += 1
    if steps == 0:
        return 0
    if ahead > 0:
        step.start_ns, step.end_ns = now, end
        step.duration_ns, step.kv_tokens = end - now, kv
    replica.context = context
    replica.longest_ns = max(replica.longest_ns, longest)
    take(run, arena, replica, taken)
    note_peaks(replica)
    settle(run, arena, params, replica, steps, now, block_ns, worst)
    strode(batcher.order, run, arena, replica, steps)
    return steps


@kernel
def count_gaps(run, arena, replica, gap):
    """One gap of all members; sums are for `settle`."""
    place = gap_bin(gap)
    for class_id in range(run.classes):
        arena[run.gaps + class_id * GAP_BINS + place] += arena[replica.classes + class_id]


@kernel
def count_outside(params, replica, members, kv):
    """Has a step left what the cost model was measured on?"""
    left = outside_box(params, members, kv, 0, 0)
    if left > 0:
        for axis in range(4):
            replica.usage.outside[axis] += left >> axis & 1


@kernel
def settle(run, arena, params, replica, steps, now, block_ns, worst):
    """Write down what `steps` steps of the group, the last of them ended now, have left behind."""
    members, elapsed = replica.members, now - replica.since_ns
    passed = now - replica.last_commit_ns
    for class_id in range(run.classes):
        weight = arena[replica.classes + class_id]
        if weight > 0:
            sums = gap_sum_at(arena, run.gap_sums, class_id)
            add(sums.sum_ns, passed * weight)
            sums.largest_ns = max(sums.largest_ns, worst)
    add(replica.usage.running_ns, elapsed * replica.running)
    add(replica.usage.waiting_ns, elapsed * all_waiting(replica))
    add(replica.usage.kv_block_ns, block_ns)
    add(replica.usage.busy_ns, elapsed)
    replica.usage.steps += steps
    replica.usage.tokens += steps * members
    replica.usage.padded_tokens += steps * (padded_tokens(params, members, 0) - members)
    push_gap(arena, replica, replica.usage.steps, worst)
    replica.usage.end_ns = replica.since_ns = replica.last_commit_ns = replica.form_ns = now
