"""Members of the group: who joined when, whose length is what, who ends, and the gaps between their tokens.

- The length of one is `computed_tokens` + (steps formed since `joined_step`), and so is the context that all of them read
  together, up to a sum that grows by the number of members in each step.
- It needs a new block in the steps in which that length is a multiple of the block size: members are counted by
  (`computed_tokens` - `joined_step`) modulo the block size.
- It ends with step `joined_step` + what was missing then: a heap of (step, slot).
- All members had their last token at the last commit: one gap for all of them, with a weight. The worst gap of one is the
  largest since it joined: a stack of gaps that no later one has reached.

Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.world.replica import SLOT_BITS, SLOT_MASK
from llmqsim.engine.compiled.world.request import ENDING, MEMBER, request_at
from llmqsim.jit import kernel


@kernel
def formed_steps(replica):
    """Number of the step that was formed last."""
    return replica.usage.steps + replica.steps


# The heap of ends: whole numbers, step << SLOT_BITS | slot, smallest first.


@kernel
def push_end(arena, replica, key):
    """Add a key."""
    heap, place = replica.ends, replica.ends_size
    replica.ends_size += 1
    while place > 0 and arena[heap + (place - 1) // 2] > key:
        arena[heap + place] = arena[heap + (place - 1) // 2]
        place = (place - 1) // 2
    arena[heap + place] = key


@kernel
def pop_end(arena, replica):
    """Take the smallest key off."""
    heap, size = replica.ends, replica.ends_size - 1
    replica.ends_size = size
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
def push_gap(arena, replica, step, gap):
    """Note the gap that a step's commit ended."""
    gaps, size = replica.gaps, replica.gaps_size
    while size > 0 and arena[gaps + 2 * size - 1] <= gap:
        size -= 1
    arena[gaps + 2 * size] = step
    arena[gaps + 2 * size + 1] = gap
    replica.gaps_size = size + 1


@kernel
def worst_gap_after(arena, replica, step):
    """Largest gap of the steps after `step`, -1 if there was none."""
    gaps, low, high = replica.gaps, 0, replica.gaps_size
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
def residue_at(run, replica, request):
    """Where members of this one's length modulo the block size are counted."""
    return replica.residues + (request.computed_tokens - request.joined_step) % run.block_size


@kernel
def end_of(request):
    """The step at whose commit a member ends."""
    return request.joined_step + request.output_tokens - (request.known_tokens - request.prompt_tokens)


@kernel
def join(run, arena, replica, slot, step_number):
    """A slot whose row in step `step_number` samples a token is a member from the next step on."""
    request = request_at(arena, replica.slots, slot)
    request.joined_step = step_number
    push_end(arena, replica, end_of(request) << SLOT_BITS | slot)
    if request.known_tokens - request.prompt_tokens >= request.max_tokens:
        request.member = ENDING
    else:
        request.member = MEMBER
        replica.members += 1
        replica.context += request.computed_tokens + 1
        arena[residue_at(run, replica, request)] += 1
        count_tenant(run, arena, replica, request, 1)


@kernel
def count_tenant(run, arena, replica, request, change):
    """Members of each tenant, where the ordering asks."""
    if run.tenants > 0:
        tenant = request.tenant_id
        arena[replica.members_of + tenant] += change
        if arena[replica.listed + tenant] == 0:
            arena[replica.listed + tenant] = 1
            arena[replica.active + replica.actives] = tenant
            replica.actives += 1


@kernel
def computed_by(request, last_step):
    """Tokens that a member has computed once step `last_step` has run."""
    if request.member == ENDING:
        last_step = end_of(request)
    return request.computed_tokens + last_step - request.joined_step


@kernel
def form_no_more(run, arena, replica, request):
    """A member is in no step that is formed from now."""
    replica.members -= 1
    replica.context -= computed_by(request, formed_steps(replica)) + 1
    arena[residue_at(run, replica, request)] -= 1
    count_tenant(run, arena, replica, request, -1)
    request.member = ENDING


@kernel
def note_ending(arena, replica, slot):
    """A member ends with the next commit. Who was admitted first ends first: its blocks are reused first."""
    ending, place = replica.ending, replica.endings
    replica.endings += 1
    its_place = request_at(arena, replica.slots, slot).place
    while place > 0 and request_at(arena, replica.slots, arena[ending + place - 1]).place > its_place:
        arena[ending + place] = arena[ending + place - 1]
        place -= 1
    arena[ending + place] = slot


@kernel
def foresee_ends(run, arena, replica):
    """Asynchronous scheduling: who ends with the step in flight, and is known to, is not in the next one."""
    in_flight = formed_steps(replica)
    while replica.ends_size > 0 and arena[replica.ends] >> SLOT_BITS <= in_flight:
        slot = pop_end(arena, replica) & SLOT_MASK
        note_ending(arena, replica, slot)
        request = request_at(arena, replica.slots, slot)
        if request.member == MEMBER and request.max_tokens == request.output_tokens:
            form_no_more(run, arena, replica, request)
