"""The group: all who decode, as one. A step costs O(1), and a request that joins or leaves costs O(log n).

A member gets one token in every step from the one after it joined, so that all it will do is known when it joins:

- its length is S_COMPUTED + (steps formed since S_STEP, the step it joined at), and so is the context that all of them
  read together, up to a sum that grows by the number of members in each step;
- it needs a new block in the steps in which that length is a multiple of the block size: members are counted by
  (S_COMPUTED - S_STEP) modulo the block size;
- it ends with step S_STEP + what was missing then: a heap of (step, slot);
- all members had their last token at the last commit: one gap for all of them, with a weight. The worst gap of one is
  the largest since it joined: a stack of gaps that no later one has reached.

Steps are numbered by replica from 1: U_STEPS were committed, U_STEPS + R_STEPS were formed. Those who don't decode yet
(`prefilling`) are rows of a step as in step/. When memory is short, the group is closed, and the step is
formed there. Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.cost.kernels import step_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.kernels import take
from llmqsim.engine.compiled.books.kernels import count_gap, look, tally
from llmqsim.engine.compiled.columns import FIRST_TOKEN
from llmqsim.engine.compiled.layout import *  # names of words, nothing else
from llmqsim.engine.compiled.orders import look_again, ran
from llmqsim.engine.compiled.prefix.kernels import share
from llmqsim.engine.compiled.step.ending.kernels import book_step, close_ranks, leave
from llmqsim.engine.compiled.step.entry.kernels import admit_waiting
from llmqsim.engine.compiled.step.forming.kernels import (
    clear,
    note_peaks,
    note_state,
    queue_up,
    read_kv,
    start,
    start_cold,
)
from llmqsim.engine.compiled.step.rows.kernels import at_most, attention, drop_oldest, put, slot_at, step_at
from llmqsim.engine.compiled.step.running.kernels import bring_back
from llmqsim.engine.compiled.swap.kernels import may_return, with_copies
from llmqsim.jit import kernel


@kernel
def formed_steps(arena, base):
    """Number of the step that was formed last."""
    return arena[base + U_STEPS] + arena[base + R_STEPS]


# The heap of ends: whole numbers, step << SLOT_BITS | slot, smallest first.


@kernel
def push_end(arena, base, key):
    """Add a key."""
    heap, place = arena[base + R_HEAP], arena[base + R_HEAP_SIZE]
    arena[base + R_HEAP_SIZE] += 1
    while place > 0 and arena[heap + (place - 1) // 2] > key:
        arena[heap + place] = arena[heap + (place - 1) // 2]
        place = (place - 1) // 2
    arena[heap + place] = key


@kernel
def pop_end(arena, base):
    """Take the smallest key off."""
    heap, size = arena[base + R_HEAP], arena[base + R_HEAP_SIZE] - 1
    arena[base + R_HEAP_SIZE] = size
    smallest, last = arena[heap], arena[heap + size]
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and arena[heap + child + 1] < arena[heap + child]:
            child += 1
        if arena[heap + child] >= last:
            break
        arena[heap + place] = arena[heap + child]
        place = child
    arena[heap + place] = last
    return smallest


# The stack of gaps: (step, gap) with falling gaps.


@kernel
def push_gap(arena, base, step, gap):
    """Note the gap that a step's commit ended."""
    gaps, size = arena[base + R_GAPS], arena[base + R_GAPS_SIZE]
    while size > 0 and arena[gaps + 2 * size - 1] <= gap:
        size -= 1
    arena[gaps + 2 * size] = step
    arena[gaps + 2 * size + 1] = gap
    arena[base + R_GAPS_SIZE] = size + 1


@kernel
def worst_gap_after(arena, base, step):
    """Largest gap of the steps after `step`, -1 if there was none."""
    gaps, low, high = arena[base + R_GAPS], 0, arena[base + R_GAPS_SIZE]
    if high == 0 or arena[gaps + 2 * high - 2] <= step:
        return -1
    while low < high:
        middle = (low + high) // 2
        if arena[gaps + 2 * middle] > step:
            high = middle
        else:
            low = middle + 1
    return arena[gaps + 2 * low + 1]


# Members.


@kernel
def residue_at(arena, base, at):
    """Where members of this one's length modulo the block size are counted."""
    return arena[base + R_RESIDUES] + (arena[at + S_COMPUTED] - arena[at + S_STEP]) % arena[G_BLOCK_SIZE]


@kernel
def end_of(arena, at):
    """The step at whose commit a member ends."""
    return arena[at + S_STEP] + arena[at + S_OUTPUT] - (arena[at + S_KNOWN] - arena[at + S_PROMPT])


@kernel
def join(arena, base, slot, step_number):
    """A slot whose row in step `step_number` samples a token is a member from the next step on."""
    at = slot_at(arena, base, slot)
    arena[at + S_STEP] = step_number
    push_end(arena, base, end_of(arena, at) << SLOT_BITS | slot)
    if arena[at + S_KNOWN] - arena[at + S_PROMPT] >= arena[at + S_MAX]:
        arena[at + S_MEMBER] = ENDING
    else:
        arena[at + S_MEMBER] = MEMBER
        arena[base + R_MEMBERS] += 1
        arena[base + R_CONTEXT] += arena[at + S_COMPUTED] + 1
        arena[residue_at(arena, base, at)] += 1
        count_tenant(arena, base, at, 1)


@kernel
def count_tenant(arena, base, at, change):
    """Members of each tenant, where the ordering asks."""
    if arena[G_TENANTS] > 0:
        tenant = arena[at + S_TENANT]
        arena[arena[base + R_MEMBERS_OF] + tenant] += change
        if arena[arena[base + R_LISTED] + tenant] == 0:
            arena[arena[base + R_LISTED] + tenant] = 1
            arena[arena[base + R_ACTIVE] + arena[base + R_ACTIVES]] = tenant
            arena[base + R_ACTIVES] += 1


@kernel
def computed_by(arena, at, last_step):
    """Tokens that a member has computed once step `last_step` has run."""
    if arena[at + S_MEMBER] == ENDING:
        last_step = end_of(arena, at)
    return arena[at + S_COMPUTED] + last_step - arena[at + S_STEP]


@kernel
def form_no_more(arena, base, at):
    """A member is in no step that is formed from now."""
    arena[base + R_MEMBERS] -= 1
    arena[base + R_CONTEXT] -= computed_by(arena, at, formed_steps(arena, base)) + 1
    arena[residue_at(arena, base, at)] -= 1
    count_tenant(arena, base, at, -1)
    arena[at + S_MEMBER] = ENDING


@kernel
def note_ending(arena, base, slot):
    """A member ends with the next commit. Who was admitted first ends first: its blocks are reused first."""
    ending, place = arena[base + R_ENDING], arena[base + R_ENDINGS]
    arena[base + R_ENDINGS] += 1
    its_place = arena[slot_at(arena, base, slot) + S_PLACE]
    while place > 0 and arena[slot_at(arena, base, arena[ending + place - 1]) + S_PLACE] > its_place:
        arena[ending + place] = arena[ending + place - 1]
        place -= 1
    arena[ending + place] = slot


@kernel
def foresee_ends(arena, base):
    """Asynchronous scheduling: who ends with the step in flight, and is known to, is not in the next one."""
    in_flight = formed_steps(arena, base)
    while arena[base + R_HEAP_SIZE] > 0 and arena[arena[base + R_HEAP]] >> SLOT_BITS <= in_flight:
        slot = pop_end(arena, base) & SLOT_MASK
        note_ending(arena, base, slot)
        at = slot_at(arena, base, slot)
        if arena[at + S_MEMBER] == MEMBER and arena[at + S_MAX] == arena[at + S_OUTPUT]:
            form_no_more(arena, base, at)


# Opening and closing.


@kernel
def open_group(arena, base):
    """Make a group of all who decode, at the forming of a step; False: not now."""
    steps, order, last = arena[base + R_STEPS], arena[base + R_ORDER], formed_steps(arena, base)
    if steps != arena[G_IN_FLIGHT] - 1 and (steps > 0 or arena[base + R_RUNNING] > 0):
        return False
    step = step_at(arena, base, 0)
    if steps > 0:
        for place in range(arena[step + T_SAMPLED]):
            slot = arena[step + STEP + place]
            if slot >= 0 and arena[slot_at(arena, base, slot) + S_STAGE] != RUNNING:
                return False
    for word in (R_MEMBERS, R_CONTEXT, R_HEAP_SIZE, R_GAPS_SIZE, R_ENDINGS, R_PREFILLING, R_MIXED):
        arena[base + word] = 0
    for residue in range(arena[G_BLOCK_SIZE]):
        arena[arena[base + R_RESIDUES] + residue] = 0
    for class_id in range(arena[G_CLASSES]):
        arena[arena[base + R_CLASSES] + class_id] = 0
    for place in range(arena[base + R_ACTIVES]):
        arena[arena[base + R_MEMBERS_OF] + arena[arena[base + R_ACTIVE] + place]] = 0
    if steps > 0:
        for place in range(arena[step + T_SAMPLED]):
            if arena[step + STEP + place] >= 0:
                join(arena, base, arena[step + STEP + place], last)
    for place in range(arena[base + R_RUNNING]):
        slot = arena[order + place]
        at = slot_at(arena, base, slot)
        arena[at + S_PLACE] = place
        had_token = arena[at + S_LAST_NS] == arena[base + R_LAST_COMMIT_NS]
        if steps == 0 and had_token and arena[at + S_KNOWN] - arena[at + S_COMPUTED] == 1:
            join(arena, base, slot, last)
            arena[arena[base + R_CLASSES] + arena[at + S_CLASS]] += 1
        if arena[at + S_MEMBER] == NO_MEMBER:
            arena[arena[base + R_PREFILL] + arena[base + R_PREFILLING]] = slot
            arena[base + R_PREFILLING] += 1
        elif arena[base + R_PREFILLING] > 0:
            arena[base + R_MIXED] = 1
    arena[base + R_OPEN] = 1
    return True


@kernel
def close_group(arena, base):
    """Bring the slots up to date, and give the steps in flight rows for all of their members."""
    formed, committed = formed_steps(arena, base), arena[base + U_STEPS]
    close_ranks(arena, base)
    for ahead in range(arena[base + R_STEPS]):  # rows in the order of the running list
        step = step_at(arena, base, ahead)
        gone = arena[step + T_GONE]
        for place in range(arena[step + T_SAMPLED]):
            gone += arena[step + STEP + place] == GONE
        arena[step + T_GONE] = arena[step + T_SAMPLED] = 0
        for _ in range(gone):
            add_row(arena, step, GONE)
    for place in range(arena[base + R_RUNNING]):
        slot = arena[arena[base + R_ORDER] + place]
        at = slot_at(arena, base, slot)
        if arena[at + S_MEMBER] == NO_MEMBER:
            continue
        joined, rows = arena[at + S_STEP], computed_by(arena, at, formed) - arena[at + S_COMPUTED]
        for ahead in range(arena[base + R_STEPS]):
            if joined <= committed + 1 + ahead <= joined + rows:
                add_row(arena, step_at(arena, base, ahead), slot)
        arena[at + S_COMPUTED] += rows
        arena[at + S_KNOWN] += rows
        if committed > joined:
            arena[at + S_GENERATED] += committed - joined
            arena[at + S_LAST_NS] = arena[base + R_LAST_COMMIT_NS]
            arena[at + S_MAX_GAP_NS] = max(arena[at + S_MAX_GAP_NS], worst_gap_after(arena, base, joined))
        arena[at + S_MEMBER] = NO_MEMBER
    arena[base + R_OPEN] = 0


@kernel
def add_row(arena, step, slot):
    """A row of a step in flight that samples a token."""
    arena[step + STEP + arena[step + T_SAMPLED]] = slot
    arena[step + T_SAMPLED] += 1


# Form and commit.


@kernel
def fits(arena, base, members_need):
    """Have members and prefilling requests tokens and blocks enough, whatever the order in which they are served?"""
    block_size = arena[G_BLOCK_SIZE]
    budget = arena[G_BUDGET] - arena[base + R_MEMBERS]
    if arena[G_HOST_BLOCKS] > 0 and arena[base + R_MIXED] != 0 and members_need > 0:
        return False  # what goes to the host depends on whose blocks are taken first
    free = arena[base + R_FREE_BLOCKS] - members_need
    whole = True
    for place in range(arena[base + R_PREFILLING]):
        at = slot_at(arena, base, arena[arena[base + R_PREFILL] + place])
        computed = arena[at + S_COMPUTED]
        missing = arena[at + S_KNOWN] - computed
        tokens = min(missing, at_most(arena, budget, NO_LIMIT))
        whole = whole and tokens == min(missing, at_most(arena, missing, NO_LIMIT))
        free -= rules.new_blocks(computed, tokens, rules.blocks_for(computed, block_size), block_size)
        budget -= tokens
    if free < 0 or budget < 0 or not (whole or arena[base + R_MIXED] == 0):
        return False
    return arena[base + R_SWAPPED] == 0 or can_grow_on_return(arena, base, free, budget)


@kernel
def can_grow_on_return(arena, base, free, budget):
    """Will those who come back from the host now find the blocks that they need beside those that they bring?"""
    running, block_size = arena[base + R_RUNNING], arena[G_BLOCK_SIZE]
    for place in range(arena[base + R_SWAPPED]):
        slot = arena[arena[base + R_SWAPS] + place]
        if not may_return(arena, base, slot, running, free, budget):
            return True
        at = slot_at(arena, base, slot)
        blocks, computed = arena[at + S_SWAPPED_BLOCKS], arena[at + S_COMPUTED]
        want = min(arena[at + S_KNOWN] - computed, at_most(arena, budget, NO_LIMIT))
        need = rules.new_blocks(computed, want, blocks, block_size)
        if blocks + need > free:
            return False
        free -= blocks + need
        budget -= want
        running += 1
    return True


@kernel
def grow_prefilling(arena, base, step):
    """The running pass behind the members, who have had their tokens; memory is enough (`fits`)."""
    block_size = arena[G_BLOCK_SIZE]
    for place in range(arena[base + R_PREFILLING]):
        slot = arena[arena[base + R_PREFILL] + place]
        at = slot_at(arena, base, slot)
        computed = arena[at + S_COMPUTED]
        budget = at_most(arena, arena[step + T_BUDGET], NO_LIMIT)
        want = rules.want_tokens(arena[at + S_KNOWN], computed, arena[at + S_PROMPT], arena[at + S_MAX], budget)
        if want > 0:
            held = rules.blocks_for(computed, block_size)
            take(arena, base, rules.new_blocks(computed, want, held, block_size))
            put(arena, base, step, slot, want)
            share(arena, base, at)


@kernel
def sort_out(arena, base, step, newcomers_from):
    """After a step is formed: who samples a token joins, the others go on prefilling, newcomers last."""
    number = formed_steps(arena, base)
    for place in range(arena[step + T_SAMPLED]):
        join(arena, base, arena[step + STEP + place], number)
    prefill, kept = arena[base + R_PREFILL], 0
    for place in range(arena[base + R_PREFILLING]):
        slot = arena[prefill + place]
        if arena[slot_at(arena, base, slot) + S_MEMBER] == NO_MEMBER:
            arena[prefill + kept] = slot
            kept += 1
        elif kept > 0:
            arena[base + R_MIXED] = 1
    for place in range(newcomers_from, arena[base + R_ORDER_END]):
        slot = arena[arena[base + R_ORDER] + place]
        if arena[slot_at(arena, base, slot) + S_MEMBER] == NO_MEMBER:
            arena[prefill + kept] = slot
            kept += 1
        elif kept > 0:
            arena[base + R_MIXED] = 1
    if kept == 0:
        arena[base + R_MIXED] = 0
    arena[base + R_PREFILLING] = kept


@kernel
def form_grouped(batcher, table, arena, costs, params, base, now):
    """Form the next step: FORMED, NOBODY when nobody can have a token, SHORT (and nothing done) when memory is short."""
    if arena[G_IN_FLIGHT] > 1:
        foresee_ends(arena, base)
    members, block_size = arena[base + R_MEMBERS], arena[G_BLOCK_SIZE]
    need = arena[arena[base + R_RESIDUES] + (-formed_steps(arena, base)) % block_size]
    if arena[base + R_GAPS_SIZE] >= GAPS - 1 or not fits(arena, base, need):
        return SHORT
    if arena[base + R_ORDER_END] > 2 * arena[G_SLOTS]:
        close_ranks(arena, base)
    tally(arena, base, now)
    look(table, arena, base, now)
    look_again(batcher.order, table, arena, base, now)
    step, newcomers_from = step_at(arena, base, arena[base + R_STEPS]), arena[base + R_ORDER_END]
    clear(arena, step)
    take(arena, base, need)
    arena[step + T_DECODES] = members
    arena[step + T_KV] = arena[base + R_CONTEXT]
    arena[step + T_BUDGET] = arena[G_BUDGET] - members
    if arena[base + R_PREFILLING] > 0:
        grow_prefilling(arena, base, step)
    all_back = arena[base + R_SWAPPED] == 0 or bring_back(batcher, table, arena, base, step, now)
    if all_back and arena[base + R_QUEUED] + arena[base + R_PREEMPTED] > 0:
        admit_waiting(batcher, table, arena, base, step, False, False, now)
    arena[base + R_BLOCKED_BY] = arena[step + T_BLOCKED_BY]
    note_peaks(arena, base)
    note_state(arena, base, step)
    if arena[step + T_DECODES] + arena[step + T_CHUNKS] == 0:
        return NOBODY
    arena[base + R_CONTEXT] += members
    running, attention_ns = arena[base + R_RUNNING], attention(arena, costs, params, step)
    arena[step + T_RUNNING] = running
    duration_ns = step_ns(
        costs,
        params,
        arena[step + T_DECODES],
        read_kv(arena, base, arena[step + T_KV], arena[step + T_DECODES]),
        arena[step + T_PREFILL],
        arena[step + T_CHUNKS],
        attention_ns,
        members + arena[step + T_SAMPLED],
        running,
    )
    arena[step + T_DURATION_NS] = with_copies(arena, costs, step, duration_ns)
    start_cold(arena, base, step)
    queue_up(arena, base, step, now)
    ran(batcher.order, table, arena, base, step, now)
    if arena[base + R_PREFILLING] > 0 or arena[base + R_ORDER_END] > newcomers_from:
        sort_out(arena, base, step, newcomers_from)
    return FORMED


@kernel
def commit_grouped(table, arena, params, base):
    """The oldest step ends: members get a token each, then the rows that sampled one; who has all of them leaves."""
    step = step_at(arena, base, 0)
    now, number = arena[step + T_END_NS], arena[base + U_STEPS] + 1
    tally(arena, base, now)
    gap = now - arena[base + R_LAST_COMMIT_NS]
    for class_id in range(arena[G_CLASSES]):
        weight = arena[arena[base + R_CLASSES] + class_id]
        if weight > 0:
            count_gap(arena, class_id, gap, weight)
    push_gap(arena, base, number, gap)
    arena[base + U_WASTED] += arena[step + T_GONE]
    for place in range(arena[step + T_SAMPLED]):
        if arena[step + STEP + place] < 0:
            arena[base + U_WASTED] += arena[step + STEP + place] == GONE
        else:
            deliver_token(table, arena, base, slot_at(arena, base, arena[step + STEP + place]), now)
    while arena[base + R_HEAP_SIZE] > 0 and arena[arena[base + R_HEAP]] >> SLOT_BITS <= number:
        note_ending(arena, base, pop_end(arena, base) & SLOT_MASK)
    for place in range(arena[base + R_ENDINGS]):
        end_member(table, arena, base, arena[arena[base + R_ENDING] + place], now)
    arena[base + R_ENDINGS] = 0
    drop_oldest(arena, base)
    arena[base + R_LAST_COMMIT_NS] = now
    book_step(arena, params, base, step, now)
    if arena[base + R_STEPS] > 0:
        start(arena, step_at(arena, base, 0), now)
    arena[base + R_FORM_NS] = now


@kernel
def deliver_token(table, arena, base, at, now):
    """The token of a row: the first of its request, or the first since it was preempted. From the next on it is a member's."""
    if arena[at + S_GENERATED] > 0:
        gap = now - arena[at + S_LAST_NS]
        count_gap(arena, arena[at + S_CLASS], gap, 1)
        arena[at + S_MAX_GAP_NS] = max(arena[at + S_MAX_GAP_NS], gap)
    else:
        table[FIRST_TOKEN, arena[at + S_ROW]] = now + arena[G_AFTER_NS]
    arena[at + S_LAST_NS] = now
    arena[at + S_GENERATED] += 1
    arena[arena[base + R_CLASSES] + arena[at + S_CLASS]] += 1


@kernel
def end_member(table, arena, base, slot, now):
    """A member has all its tokens. If nobody foresaw it, the step formed since holds a row of it for nothing."""
    at = slot_at(arena, base, slot)
    computed = computed_by(arena, at, formed_steps(arena, base))
    if arena[at + S_MEMBER] == MEMBER:
        if arena[base + R_STEPS] > 1:
            arena[step_at(arena, base, 1) + T_GONE] += 1
        form_no_more(arena, base, at)
    arena[arena[base + R_CLASSES] + arena[at + S_CLASS]] -= 1
    arena[at + S_COMPUTED] = computed
    arena[at + S_GENERATED] = arena[at + S_OUTPUT]
    arena[at + S_MAX_GAP_NS] = max(arena[at + S_MAX_GAP_NS], worst_gap_after(arena, base, arena[at + S_STEP]))
    arena[at + S_MEMBER] = NO_MEMBER
    arena[arena[base + R_ORDER] + arena[at + S_PLACE]] = GONE
    arena[base + R_RUNNING] -= 1
    leave(table, arena, base, slot, now)
