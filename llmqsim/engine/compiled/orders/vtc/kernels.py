"""Virtual token counter: Vtc of policies/ordering/service.py in arrays.

Of each tenant: R_SERVED, weighted tokens; R_QUEUED_OF, requests in the queue; R_FIRST_OF, the first of them, which stands in
the queue with the tenant's counter, and R_REST_OF, a heap of the others by arrival; R_MEMBERS_OF, how many are in the group.
R_ACTIVE lists tenants that may have members (R_ACTIVES of them, R_LISTED those on the list).

Counters only grow, and who stands in the queue with an old one only has to go back. So whoever comes to the top gets
the counter of now, and nobody else does. Who is preempted goes to the front, or behind all until the next time that a
counter has grown: R_MEMORY, were tokens made since the last look? R_STALE, has one grown since the queue was last read?
R_TAIL : has somebody left who is still counted?
"""

from __future__ import annotations

from llmqsim.engine.compiled.blocks.kernels import slot_of
from llmqsim.engine.compiled.columns import ARRIVAL, PREEMPTIONS, PROMPT_TOKENS, TENANT_ID
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import Vtc
from llmqsim.engine.compiled.orders.kernels import call_late, page, take_back_in, waiting, welcome
from llmqsim.engine.compiled.queue.kernels import (
    entry_at,
    first_of,
    head,
    pop,
    pop_from,
    push,
    push_key,
    put_into,
    take_out,
)
from llmqsim.jit import kernel


@kernel
def key_of(order, table, arena, base, row, slot, now):
    """(counter of its tenant, arrival)."""
    return arena[arena[base + R_SERVED] + table[TENANT_ID, row]], table[ARRIVAL, row]


@kernel
def late_key_of(order, table, arena, base, row, slot, now):
    """Behind everybody."""
    return NO_LIMIT, now


@kernel
def least_counter(table, arena, base):
    """The least counter of tenants that have somebody waiting, NEVER if none has."""
    served, queued, least = arena[base + R_SERVED], arena[base + R_QUEUED_OF], NEVER
    if arena[base + R_PREEMPTED] == 0 and arena[base + R_TAIL] == 0:
        bring_up(table, arena, base)
        row = arena[base + R_TOP]
        return arena[served + table[TENANT_ID, row]] if row >= 0 else NEVER
    for other in range(arena[G_TENANTS]):
        if arena[queued + other] > 0:
            least = min(least, arena[served + other])
    return least


@kernel
def bring_up(table, arena, base):
    """Whoever is at the top stands there with the counter of now."""
    row, fresh = head(arena, base), False
    while row >= 0 and not fresh:
        at, counter = entry_at(arena, row), arena[arena[base + R_SERVED] + table[TENANT_ID, row]]
        fresh = arena[at + Q_RANK] != IN_ORDER or arena[at + Q_LEVEL] in (counter, NO_LIMIT)
        if not fresh:
            pop(arena, base)
            push_key(arena, base, row, counter, arena[at + Q_VALUE])
            row = head(arena, base)


@kernel
def joined(order, table, arena, base, row, slot, now):
    """The lift: who was away has saved up nothing."""
    served, queued, tenant = arena[base + R_SERVED], arena[base + R_QUEUED_OF], table[TENANT_ID, row]
    if arena[queued + tenant] == 0:
        least = least_counter(table, arena, base)
        if least < NEVER:
            arena[served + tenant] = max(arena[served + tenant], least)
    arena[queued + tenant] += 1


@kernel
def stand(order, table, arena, base, row, slot, now):
    """In the queue, if it is its tenant's first; the one who was then waits with the rest."""
    firsts = arena[base + R_FIRST_OF] + table[TENANT_ID, row]
    first = arena[firsts]
    if first >= 0:
        if table[ARRIVAL, first] < table[ARRIVAL, row] or (table[ARRIVAL, first] == table[ARRIVAL, row] and first < row):
            wait_behind(table, arena, base, row)
            return
        take_out(arena, base + R_TOP, first)
        wait_behind(table, arena, base, first)
    arena[firsts] = row
    counter, arrival = key_of(order, table, arena, base, row, slot, now)
    push_key(arena, base, row, counter, arrival)


@kernel
def wait_behind(table, arena, base, row):
    """With the rest of its tenant."""
    at = entry_at(arena, row)
    arena[at + Q_RANK], arena[at + Q_LEVEL], arena[at + Q_VALUE] = IN_ORDER, 0, table[ARRIVAL, row]
    put_into(arena, arena[base + R_REST_OF] + table[TENANT_ID, row], row)


@kernel
def lifted(order, table, arena, base, row):
    """The next of its tenant is the first, if this one was."""
    tenant = table[TENANT_ID, row]
    if arena[arena[base + R_FIRST_OF] + tenant] == row:
        rest = arena[base + R_REST_OF] + tenant
        following = first_of(arena, rest)
        arena[arena[base + R_FIRST_OF] + tenant] = following
        if following >= 0:
            pop_from(arena, rest)
            push_key(arena, base, following, arena[arena[base + R_SERVED] + tenant], table[ARRIVAL, following])


@kernel
def stand_again(order, table, arena, base, row, rank):
    """At the front, behind all, or as any other of its tenant."""
    at = entry_at(arena, row)
    if rank == IN_ORDER and arena[at + Q_LEVEL] != NO_LIMIT:
        stand(order, table, arena, base, row, arena[at + Q_SLOT], 0)
    else:
        push(arena, base, row, rank, arena[at + Q_VALUE])


@kernel
def left(order, table, arena, base, row, entered):
    """Its prompt is charged at once, so that the next in line may be of another tenant."""
    lifted(order, table, arena, base, row)
    arena[base + R_TAIL] = not entered
    welcome(order, table, arena, base)
    arena[base + R_TAIL] = 0
    tenant = table[TENANT_ID, row]
    arena[arena[base + R_QUEUED_OF] + tenant] -= 1
    if entered and table[PREEMPTIONS, row] == 0:
        arena[arena[base + R_SERVED] + tenant] += order.prompt_weight * table[PROMPT_TOKENS, row]
        arena[base + R_STALE] = 1


@kernel
def look_again(order, table, arena, base, now):
    """Tokens were made since the last look."""
    welcome(order, table, arena, base)
    if arena[base + R_MEMORY] != 0:
        arena[base + R_MEMORY] = 0
        arena[base + R_STALE] = waiting(arena, base) > 0 or arena[base + R_STALE] != 0


@kernel
def catch_up(order, table, arena, base, now):
    """Those behind all come back once a counter has grown."""
    if arena[base + R_STALE] != 0:
        arena[base + R_STALE] = 0
        call_late(order, table, arena, base, False, now)
    take_back_in(order, table, arena, base, now)
    bring_up(table, arena, base)


@kernel
def ran(order, table, arena, base, step, now):
    """Charge the tokens that the step makes."""
    served = arena[base + R_SERVED]
    for place in range(arena[step + T_SAMPLED]):
        slot = arena[step + STEP + place]
        arena[served + arena[slot_of(arena, base, slot) + S_TENANT]] += order.output_weight
        arena[base + R_MEMORY] = 1
    if arena[base + R_OPEN] != 0:
        strode(order, arena, base, 1)


@kernel
def strode(order, arena, base, steps):
    """Each member has made a token in each of these steps."""
    if arena[base + R_MEMBERS] == 0:
        return
    arena[base + R_MEMORY] = 1
    active, place = arena[base + R_ACTIVE], 0
    while place < arena[base + R_ACTIVES]:
        tenant = arena[active + place]
        members = arena[arena[base + R_MEMBERS_OF] + tenant]
        if members > 0:
            arena[arena[base + R_SERVED] + tenant] += order.output_weight * steps * members
            place += 1
        else:  # off the list
            arena[base + R_ACTIVES] -= 1
            arena[active + place] = arena[active + arena[base + R_ACTIVES]]
            arena[arena[base + R_LISTED] + tenant] = 0


page(
    Vtc,
    key_of,
    late_key_of,
    joined=joined,
    stand=stand,
    lifted=lifted,
    stand_again=stand_again,
    left=left,
    look_again=look_again,
    catch_up=catch_up,
    ran=ran,
    strode=strode,
)
