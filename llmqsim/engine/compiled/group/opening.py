"""The group is made of all who decode, and taken apart again: slots brought up to date, rows written. Arguments as in step/."""

from __future__ import annotations

from llmqsim.engine.compiled.group.members import computed_by, formed_steps, join, worst_gap_after
from llmqsim.engine.compiled.step.ending import close_ranks
from llmqsim.engine.compiled.step.rows import step_in_flight
from llmqsim.engine.compiled.world.limits import GONE
from llmqsim.engine.compiled.world.request import NO_MEMBER, RUNNING, request_at
from llmqsim.jit import kernel


@kernel
def open_group(run, arena, replica):
    """Make a group of all who decode, at the forming of a step; False: not now."""
    steps, order, last = replica.steps, replica.order, formed_steps(replica)
    if steps != run.in_flight - 1 and (steps > 0 or replica.running > 0):
        return False
    step = step_in_flight(run, arena, replica, 0)
    if steps > 0:
        for place in range(step.sampled):
            slot = arena[step.samples + place]
            if slot >= 0 and request_at(arena, replica.slots, slot).stage != RUNNING:
                return False
    replica.members = replica.context = replica.mixed = 0
    replica.ends_size = replica.gaps_size = replica.endings = replica.prefilling = 0
    for residue in range(run.block_size):
        arena[replica.residues + residue] = 0
    for class_id in range(run.classes):
        arena[replica.classes + class_id] = 0
    for place in range(replica.actives):
        arena[replica.members_of + arena[replica.active + place]] = 0
    if steps > 0:
        for place in range(step.sampled):
            if arena[step.samples + place] >= 0:
                join(run, arena, replica, arena[step.samples + place], last)
    for place in range(replica.running):
        slot = arena[order + place]
        request = request_at(arena, replica.slots, slot)
        request.place = place
        had_token = request.last_ns == replica.last_commit_ns
        if steps == 0 and had_token and request.known_tokens - request.computed_tokens == 1:
            join(run, arena, replica, slot, last)
            arena[replica.classes + request.class_id] += 1
        if request.member == NO_MEMBER:
            arena[replica.prefill + replica.prefilling] = slot
            replica.prefilling += 1
        elif replica.prefilling > 0:
            replica.mixed = 1
    replica.open = 1
    return True


@kernel
def close_group(run, arena, replica):
    """Bring the slots up to date, and give the steps in flight rows for all of their members."""
    formed, committed = formed_steps(replica), replica.usage.steps
    close_ranks(arena, replica)
    for ahead in range(replica.steps):  # rows in the order of the running list
        step = step_in_flight(run, arena, replica, ahead)
        gone = step.gone
        for place in range(step.sampled):
            gone += arena[step.samples + place] == GONE
        step.gone = step.sampled = 0
        for _ in range(gone):
            add_row(arena, step, GONE)
    for place in range(replica.running):
        slot = arena[replica.order + place]
        request = request_at(arena, replica.slots, slot)
        if request.member == NO_MEMBER:
            continue
        joined, rows = request.joined_step, computed_by(request, formed) - request.computed_tokens
        for ahead in range(replica.steps):
            if joined <= committed + 1 + ahead <= joined + rows:
                add_row(arena, step_in_flight(run, arena, replica, ahead), slot)
        request.computed_tokens += rows
        request.known_tokens += rows
        if committed > joined:
            request.generated_tokens += committed - joined
            request.last_ns = replica.last_commit_ns
            request.max_gap_ns = max(request.max_gap_ns, worst_gap_after(arena, replica, joined))
        request.member = NO_MEMBER
    replica.open = 0


@kernel
def add_row(arena, step, slot):
    """A row of a step in flight that samples a token."""
    arena[step.samples + step.sampled] = slot
    step.sampled += 1
