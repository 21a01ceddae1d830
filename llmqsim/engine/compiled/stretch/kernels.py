"""A stretch: steps in which everybody who runs decodes, nobody ends and nobody can enter. Each costs O(1).

All that changes from step to step is then known in advance: the batch is the same, its context grows by one token a
request, and who needs a new block is told by how many requests had which length modulo the block size. Slots are
brought up to date when the stretch is closed. Arguments as in step/kernels.py.

A stretch is open while R_STRETCH > 0, the number of requests in it. The steps in flight then have no rows: everybody
is in them. R_STRETCH_KV: tokens read by the step formed next. R_STRETCH_LEFT: commits until somebody would end.
"""

from __future__ import annotations

from llmqsim.cost.kernels import step_ns
from llmqsim.engine import rules
from llmqsim.engine.compiled.books.kernels import count_gap, look, tally
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.step.kernels import admission, book_step, first_in_line, queue_up, slot_at, start, step_at
from llmqsim.jit import kernel

WORTH = 2
"""steps that a stretch must have, at least"""


@kernel
def only_decodes_in_flight(arena, base):
    """Is the step in flight (if there is one) one token for each of those who run?"""
    if arena[base + R_STEPS] == 0:
        return True
    step, running = step_at(arena, base, 0), arena[base + R_RUNNING]
    if arena[step + T_DECODES] != running or arena[step + T_SAMPLED] != running or arena[step + T_CHUNKS] > 0:
        return False
    for place in range(running):
        slot = arena[step + STEP + place]
        if slot == GONE or arena[slot_at(arena, base, slot) + S_STAGE] != RUNNING:
            return False
    return True


@kernel
def steps_until_an_end(arena, base):
    """Commits before the one at which somebody ends; 0 unless everybody decodes and had a token at the last commit."""
    left = NEVER
    for place in range(arena[base + R_RUNNING] - 1, -1, -1):  # the newest is most likely to be still prefilling
        at = slot_at(arena, base, arena[arena[base + R_ORDER] + place])
        if arena[at + S_KNOWN] - arena[at + S_COMPUTED] != 1:
            return 0
        if arena[at + S_LAST_NS] != arena[base + R_LAST_COMMIT_NS]:
            return 0
        left = min(left, arena[at + S_OUTPUT] - arena[at + S_GENERATED] - 1)
    return left


@kernel
def open_stretch(table, arena, base, now):
    """Open a stretch at the forming of a step, if there is one; say so."""
    running, in_flight = arena[base + R_RUNNING], arena[G_IN_FLIGHT]
    if running == 0 or running > arena[G_BUDGET] or arena[base + R_STEPS] != in_flight - 1:
        return False
    left = steps_until_an_end(arena, base)
    if left < WORTH or not only_decodes_in_flight(arena, base):
        return False
    blocked_by = rules.WAIT_STEP
    if arena[base + R_PREEMPTED] + arena[base + R_QUEUED] > 0:
        # blocks only become fewer until the stretch ends, so who can't enter now can't enter before
        _, known = first_in_line(table, arena, base)
        blocked_by, _ = admission(arena, base, known, arena[G_BUDGET] - running)
        if blocked_by == rules.ADMITTED:
            return False
    tally(arena, base, now)
    look(table, arena, base, now)
    arena[base + R_BLOCKED_BY] = blocked_by
    arena[base + R_STRETCH] = running
    arena[base + R_STRETCH_LEFT] = left
    arena[base + R_STRETCH_FORMED] = 0
    arena[base + R_STRETCH_COMMITTED] = 0
    arena[base + R_STRETCH_GAP] = 0
    arena[base + R_STRETCH_RESIDUE] = 0
    count_members(arena, base)
    return True


@kernel
def count_members(arena, base):
    """How many members have which length modulo the block size, and which class; the context that they read together."""
    block_size, residues, classes = arena[G_BLOCK_SIZE], arena[base + R_RESIDUES], arena[base + R_CLASSES]
    for residue in range(block_size):
        arena[residues + residue] = 0
    for class_id in range(arena[G_CLASSES]):
        arena[classes + class_id] = 0
    context = 0
    for place in range(arena[base + R_RUNNING]):
        at = slot_at(arena, base, arena[arena[base + R_ORDER] + place])
        computed = arena[at + S_COMPUTED]
        context += computed + 1
        arena[residues + computed % block_size] += 1
        arena[classes + arena[at + S_CLASS]] += 1
    arena[base + R_STRETCH_KV] = context


@kernel
def close_stretch(arena, base):
    """Bring the slots up to date, and give the steps in flight their rows."""
    formed, committed = arena[base + R_STRETCH_FORMED], arena[base + R_STRETCH_COMMITTED]
    order, running = arena[base + R_ORDER], arena[base + R_RUNNING]
    gap, last = arena[base + R_STRETCH_GAP], arena[base + R_LAST_COMMIT_NS]
    for place in range(running):
        at = slot_at(arena, base, arena[order + place])
        arena[at + S_COMPUTED] += formed
        arena[at + S_KNOWN] += formed
        if committed > 0:
            arena[at + S_GENERATED] += committed
            arena[at + S_LAST_NS] = last
            arena[at + S_MAX_GAP_NS] = max(arena[at + S_MAX_GAP_NS], gap)
    for ahead in range(arena[base + R_STEPS]):
        step = step_at(arena, base, ahead)
        arena[step + T_SAMPLED] = running
        for place in range(running):
            arena[step + STEP + place] = arena[order + place]
    arena[base + R_STRETCH] = 0


@kernel
def form_member_step(arena, costs, params, base, now):
    """Form the next step of a stretch; False, and nothing done, when the stretch must be closed before it."""
    if arena[base + R_STRETCH_COMMITTED] >= arena[base + R_STRETCH_LEFT]:
        return False
    block_size = arena[G_BLOCK_SIZE]
    residue = arena[base + R_STRETCH_RESIDUE]
    need = arena[arena[base + R_RESIDUES] + residue]
    free = arena[base + R_FREE_BLOCKS] - need
    if free < 0:
        return False
    running, context = arena[base + R_STRETCH], arena[base + R_STRETCH_KV]
    arena[base + R_STRETCH_RESIDUE] = residue - 1 if residue > 0 else block_size - 1
    arena[base + R_FREE_BLOCKS] = free
    arena[base + R_STRETCH_KV] = context + running
    arena[base + R_STRETCH_FORMED] += 1
    arena[base + U_BLOCKS_PEAK] = max(arena[base + U_BLOCKS_PEAK], arena[base + R_USABLE_BLOCKS] - free)
    step = step_at(arena, base, arena[base + R_STEPS])
    arena[step + T_DURATION_NS] = step_ns(costs, params, running, context, 0, 0, 0.0, running, running)
    arena[step + T_DECODES] = running
    arena[step + T_KV] = context
    arena[step + T_PREFILL] = 0
    arena[step + T_CHUNKS] = 0
    arena[step + T_CONTEXT] = 0
    arena[step + T_RECOMPUTED] = 0
    arena[step + T_RUNNING] = running
    queue_up(arena, base, step, now)
    return True


@kernel
def commit_member_step(arena, params, base):
    """The oldest step of a stretch ends: everybody gets a token."""
    step = step_at(arena, base, 0)
    now = arena[step + T_END_NS]
    tally(arena, base, now)
    arena[base + R_STEPS] -= 1
    arena[base + R_OLDEST] ^= 1
    gap = now - arena[base + R_LAST_COMMIT_NS]
    for class_id in range(arena[G_CLASSES]):
        weight = arena[arena[base + R_CLASSES] + class_id]
        if weight > 0:
            count_gap(arena, class_id, gap, weight)
    arena[base + R_STRETCH_GAP] = max(arena[base + R_STRETCH_GAP], gap)
    arena[base + R_STRETCH_COMMITTED] += 1
    arena[base + R_LAST_COMMIT_NS] = now
    book_step(arena, params, base, step, now)
    if arena[base + R_STEPS] > 0:
        start(arena, step_at(arena, base, 0), now)
    arena[base + R_FORM_NS] = now


@kernel
def go_on(table, arena, costs, params, base, commit_limit, form_limit):
    """Form and commit steps of an open stretch until something else is due, or it must be closed.

    True: it was closed, and a step must be formed now in the general way.
    """
    while True:
        now = arena[base + R_FORM_NS]
        if now != NEVER:
            if arena[base + R_DELIVER_NS] <= now or now >= form_limit:
                return False
            if arena[base + R_FRESH] > 0:
                if arena[base + R_PREEMPTED] + arena[base + R_QUEUED] == arena[base + R_FRESH]:
                    close_stretch(arena, base)  # the queue was empty: the newcomer may enter
                    return True
                look(table, arena, base, now)
            while arena[base + R_STEPS] < arena[G_IN_FLIGHT]:
                if not form_member_step(arena, costs, params, base, now):
                    close_stretch(arena, base)
                    return True
            arena[base + R_FORM_NS] = NEVER
        end = arena[step_at(arena, base, 0) + T_END_NS]
        if end > commit_limit or end > arena[base + R_DELIVER_NS]:
            return False
        if arena[G_LOG_ROWS] > 0 and arena[G_LOGGED] == arena[G_LOG_ROWS]:
            return False
        commit_member_step(arena, params, base)
