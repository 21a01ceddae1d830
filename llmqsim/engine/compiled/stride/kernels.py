"""A stride: steps of the group alone, formed and committed in one loop over local numbers.

While nobody prefills, nobody ends, nothing is delivered and the head of the queue can't enter, a step only looks its
duration up and counts. What the steps leave behind is written once, at the end. Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.cost.kernels import outside_box, padded_tokens, step_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.kernels import take
from llmqsim.engine.compiled.books.kernels import add, all_waiting, gap_bin, look, tally
from llmqsim.engine.compiled.group.kernels import push_gap
from llmqsim.engine.compiled.layout import *  # names of words, nothing else
from llmqsim.engine.compiled.orders import may_stride, strode
from llmqsim.engine.compiled.step.entry.kernels import admission, first_in_line
from llmqsim.engine.compiled.step.forming.kernels import note_peaks, read_kv
from llmqsim.engine.compiled.step.rows.kernels import step_at
from llmqsim.engine.compiled.swap.kernels import first_may_return
from llmqsim.jit import kernel
from llmqsim.records import GAP_BINS


@kernel
def is_group_alone(arena, base):
    """Are the members all who run, in the step in flight too, with nothing new to look at and no log to keep?"""
    members = arena[base + R_MEMBERS]
    if arena[base + R_OPEN] == 0 or members == 0 or members != arena[base + R_RUNNING] or members > arena[G_BUDGET]:
        return False
    if arena[base + R_FRESH] > 0 or arena[base + R_STEPS] != arena[G_IN_FLIGHT] - 1 or arena[G_LOG_ROWS] > 0:
        return False
    step = step_at(arena, base, 0)
    return arena[base + R_STEPS] == 0 or (
        arena[step + T_DECODES] == members
        and arena[step + T_SAMPLED] + arena[step + T_GONE] + arena[step + T_CHUNKS] == 0
    )


@kernel
def stays_out(batcher, table, arena, base):
    """What keeps the head of the queue out (WAIT_STEP: nobody waits), ADMITTED if it may enter; for how many blocks taken.

    Who can't enter now can't before somebody ends: free blocks only become fewer, and so do cached ones. Each block that
    the head would have hit and that is reused makes it need one block less of those that are then one fewer. Only where
    the prompt must be whole may another reason keep it out then, and where the cache was filled beforehand or the host keeps what
    loses its place, it can lose blocks from the middle of what it would hit: for no block, then.
    """
    budget = arena[G_BUDGET] - arena[base + R_MEMBERS]
    if arena[base + R_SWAPPED] > 0:
        return rules.ADMITTED if first_may_return(arena, base, budget) else rules.WAIT_KV, NEVER
    if arena[base + R_PREEMPTED] + arena[base + R_QUEUED] == 0:
        return rules.WAIT_STEP, NEVER
    slot, row, known = first_in_line(batcher, table, arena, base, arena[base + R_FORM_NS])
    refused_by, _, hit = admission(arena, base, slot, row, known, budget, NO_LIMIT, 0)
    can_lose = arena[G_CHUNKED] == 0 or arena[G_WARM] != 0 or arena[G_HOST_BLOCKS] > 0
    if refused_by == rules.WAIT_KV and hit > 0 and can_lose:
        return refused_by, 0
    return refused_by, NEVER


@kernel
def stride(batcher, table, arena, costs, params, base, commit_limit, form_limit):
    """Make steps of the group alone while they end by `commit_limit` and are formed before `form_limit`; say how many."""
    if not is_group_alone(arena, base) or arena[base + R_PREFILLING] > 0 or not may_stride(batcher.order, arena, base):
        return 0
    blocked_by, most_taken = stays_out(batcher, table, arena, base)
    if blocked_by == rules.ADMITTED:
        return 0
    began = now = arena[base + R_FORM_NS]
    tally(arena, base, now)
    look(table, arena, base, now)
    arena[base + R_BLOCKED_BY] = blocked_by
    ahead = arena[base + R_STEPS]  # 1: the step formed here is committed in the next round
    step = step_at(arena, base, 0)
    end, kv = arena[step + T_END_NS], arena[step + T_KV]
    members, context, deliver_ns = arena[base + R_MEMBERS], arena[base + R_CONTEXT], arena[base + R_DELIVER_NS]
    left = (arena[arena[base + R_HEAP]] >> SLOT_BITS) - 1 - arena[base + U_STEPS]
    free, usable, block_size = arena[base + R_FREE_BLOCKS], arena[base + R_USABLE_BLOCKS], arena[G_BLOCK_SIZE]
    residues, residue = arena[base + R_RESIDUES], -(arena[base + U_STEPS] + ahead) % block_size
    steps = taken = block_ns = worst = longest = duration = 0
    # what is delivered before a step ends must be in the queue by then
    last, limit = arena[base + R_LAST_COMMIT_NS], min(commit_limit, deliver_ns)
    while steps < left and now < form_limit and now - began < LONGEST_STEP:
        need = arena[residues + residue]
        if need > min(free, most_taken) - taken or (ahead > 0 and end > limit):
            break
        duration = step_ns(costs, params, members, read_kv(arena, base, context, members), 0, 0, 0.0, members, members)
        if ahead == 0:
            end, kv = now + duration, context
            if end > limit:
                break
        taken += need
        block_ns += (end - now) * (usable - free + taken)
        gap = end - last
        count_gaps(arena, base, gap)
        count_outside(arena, params, base, members, kv)
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
        arena[step + T_START_NS], arena[step + T_END_NS] = now, end
        arena[step + T_DURATION_NS], arena[step + T_KV] = end - now, kv
    arena[base + R_CONTEXT] = context
    arena[base + R_LONGEST_NS] = max(arena[base + R_LONGEST_NS], longest)
    take(arena, base, taken)
    note_peaks(arena, base)
    settle(arena, params, base, steps, now, block_ns, worst)
    strode(batcher.order, arena, base, steps)
    return steps


@kernel
def count_gaps(arena, base, gap):
    """One gap of all members; sums are for `settle`."""
    place = gap_bin(gap)
    for class_id in range(arena[G_CLASSES]):
        arena[arena[G_GAPS] + class_id * GAP_BINS + place] += arena[arena[base + R_CLASSES] + class_id]


@kernel
def count_outside(arena, params, base, members, kv):
    """Has a step left what the cost model was measured on?"""
    left = outside_box(params, members, kv, 0, 0)
    if left > 0:
        for axis in range(4):
            arena[base + U_OUTSIDE + axis] += left >> axis & 1


@kernel
def settle(arena, params, base, steps, now, block_ns, worst):
    """Write down what `steps` steps of the group, the last of them ended now, have left behind."""
    members, elapsed = arena[base + R_MEMBERS], now - arena[base + R_SINCE_NS]
    passed = now - arena[base + R_LAST_COMMIT_NS]
    for class_id in range(arena[G_CLASSES]):
        weight = arena[arena[base + R_CLASSES] + class_id]
        if weight > 0:
            sums = arena[G_GAP_SUMS] + class_id * 3
            add(arena, sums, passed * weight)
            arena[sums + 2] = max(arena[sums + 2], worst)
    add(arena, base + U_RUNNING, elapsed * arena[base + R_RUNNING])
    add(arena, base + U_WAITING, elapsed * all_waiting(arena, base))
    add(arena, base + U_BLOCKS, block_ns)
    add(arena, base + U_BUSY, elapsed)
    arena[base + U_STEPS] += steps
    arena[base + U_TOKENS] += steps * members
    arena[base + U_PADDED] += steps * (padded_tokens(params, members, 0) - members)
    push_gap(arena, base, arena[base + U_STEPS], worst)
    for word in (U_END_NS, R_SINCE_NS, R_LAST_COMMIT_NS, R_FORM_NS):
        arena[base + word] = now
