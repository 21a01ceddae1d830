"""Virtual token counter: Vtc of policies/ordering/service.py in arrays.

Of each tenant: `served`, weighted tokens; `queued_of`, requests in the queue; `first_of`, the first of them, which stands in
the queue with the tenant's counter, and `rest_of`, a heap of the others by arrival; `members_of`, how many are in the group.
`active` lists tenants that may have members (`actives` of them, `listed` those on the list).

Counters only grow, and who stands in the queue with an old one only has to go back. So whoever comes to the top gets
the counter of now, and nobody else does. Who is preempted goes to the front, or behind all until the next time that a
counter has grown. `memory` : were tokens made since the last look? `stale` : has a counter grown since the queue was last
read? `tail` : has somebody left who is still counted?
"""

from __future__ import annotations

from llmqsim.engine.compiled.columns import ARRIVAL, PREEMPTIONS, PROMPT_TOKENS, TENANT_ID
from llmqsim.engine.compiled.orders import Vtc
from llmqsim.engine.compiled.orders.common import call_late, page, take_back_in, waiting, welcome
from llmqsim.engine.compiled.queue import first_of, head, pop, pop_from, push, push_key, put_into, take_out
from llmqsim.engine.compiled.world.limits import NEVER, NO_LIMIT
from llmqsim.engine.compiled.world.queue import IN_ORDER, entry_at, heap_at
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.jit import kernel


@kernel
def key_of(order, table, run, arena, replica, row, slot, now):
    """(counter of its tenant, arrival)."""
    return arena[replica.served + table[TENANT_ID, row]], table[ARRIVAL, row]


@kernel
def late_key_of(order, table, run, arena, replica, row, slot, now):
    """Behind everybody."""
    return NO_LIMIT, now


@kernel
def least_counter(table, run, arena, replica):
    """The least counter of tenants that have somebody waiting, NEVER if none has."""
    served, queued, least = replica.served, replica.queued_of, NEVER
    if replica.preempted == 0 and replica.tail == 0:
        bring_up(table, run, arena, replica)
        row = replica.top.first
        return arena[served + table[TENANT_ID, row]] if row >= 0 else NEVER
    for other in range(run.tenants):
        if arena[queued + other] > 0:
            least = min(least, arena[served + other])
    return least


@kernel
def bring_up(table, run, arena, replica):
    """Whoever is at the top stands there with the counter of now."""
    row, fresh = head(run, arena, replica), False
    while row >= 0 and not fresh:
        entry, counter = entry_at(arena, run.queue, row), arena[replica.served + table[TENANT_ID, row]]
        fresh = entry.rank != IN_ORDER or entry.level in (counter, NO_LIMIT)
        if not fresh:
            pop(run, arena, replica)
            push_key(run, arena, replica, row, counter, entry.value)
            row = head(run, arena, replica)


@kernel
def joined(order, table, run, arena, replica, row, slot, now):
    """The lift: who was away has saved up nothing."""
    served, queued, tenant = replica.served, replica.queued_of, table[TENANT_ID, row]
    if arena[queued + tenant] == 0:
        least = least_counter(table, run, arena, replica)
        if least < NEVER:
            arena[served + tenant] = max(arena[served + tenant], least)
    arena[queued + tenant] += 1


@kernel
def stand(order, table, run, arena, replica, row, slot, now):
    """In the queue, if it is its tenant's first; the one who was then waits with the rest."""
    firsts = replica.first_of + table[TENANT_ID, row]
    first = arena[firsts]
    if first >= 0:
        if table[ARRIVAL, first] < table[ARRIVAL, row] or (
            table[ARRIVAL, first] == table[ARRIVAL, row] and first < row
        ):
            wait_behind(table, run, arena, replica, row)
            return
        take_out(run, arena, replica.top, first)
        wait_behind(table, run, arena, replica, first)
    arena[firsts] = row
    counter, arrival = key_of(order, table, run, arena, replica, row, slot, now)
    push_key(run, arena, replica, row, counter, arrival)


@kernel
def wait_behind(table, run, arena, replica, row):
    """With the rest of its tenant."""
    entry = entry_at(arena, run.queue, row)
    entry.rank, entry.level, entry.value = IN_ORDER, 0, table[ARRIVAL, row]
    put_into(run, arena, heap_at(arena, replica.rest_of, table[TENANT_ID, row]), row)


@kernel
def lifted(order, table, run, arena, replica, row):
    """The next of its tenant is the first, if this one was."""
    tenant = table[TENANT_ID, row]
    if arena[replica.first_of + tenant] == row:
        rest = heap_at(arena, replica.rest_of, tenant)
        following = first_of(run, arena, rest)
        arena[replica.first_of + tenant] = following
        if following >= 0:
            pop_from(run, arena, rest)
            push_key(run, arena, replica, following, arena[replica.served + tenant], table[ARRIVAL, following])


@kernel
def stand_again(order, table, run, arena, replica, row, rank):
    """At the front, behind all, or as any other of its tenant."""
    entry = entry_at(arena, run.queue, row)
    if rank == IN_ORDER and entry.level != NO_LIMIT:
        stand(order, table, run, arena, replica, row, entry.slot, 0)
    else:
        push(run, arena, replica, row, rank, entry.value)


@kernel
def left(order, table, run, arena, replica, row, entered):
    """Its prompt is charged at once, so that the next in line may be of another tenant."""
    lifted(order, table, run, arena, replica, row)
    replica.tail = not entered
    welcome(order, table, run, arena, replica)
    replica.tail = 0
    tenant = table[TENANT_ID, row]
    arena[replica.queued_of + tenant] -= 1
    if entered and table[PREEMPTIONS, row] == 0:
        arena[replica.served + tenant] += order.prompt_weight * table[PROMPT_TOKENS, row]
        replica.stale = 1


@kernel
def look_again(order, table, run, arena, replica, now):
    """Tokens were made since the last look."""
    welcome(order, table, run, arena, replica)
    if replica.memory != 0:
        replica.memory = 0
        replica.stale = waiting(replica) > 0 or replica.stale != 0


@kernel
def catch_up(order, table, run, arena, replica, now):
    """Those behind all come back once a counter has grown."""
    if replica.stale != 0:
        replica.stale = 0
        call_late(order, table, run, arena, replica, False, now)
    take_back_in(order, table, run, arena, replica, now)
    bring_up(table, run, arena, replica)


@kernel
def ran(order, table, run, arena, replica, step, now):
    """Charge the tokens that the step makes."""
    served = replica.served
    for place in range(step.sampled):
        slot = arena[step.samples + place]
        arena[served + request_at(arena, replica.slots, slot).tenant_id] += order.output_weight
        replica.memory = 1
    if replica.open != 0:
        strode(order, run, arena, replica, 1)


@kernel
def strode(order, run, arena, replica, steps):
    """Each member has made a token in each of these steps."""
    if replica.members == 0:
        return
    replica.memory = 1
    active, place = replica.active, 0
    while place < replica.actives:
        tenant = arena[active + place]
        members = arena[replica.members_of + tenant]
        if members > 0:
            arena[replica.served + tenant] += order.output_weight * steps * members
            place += 1
        else:  # off the list
            replica.actives -= 1
            arena[active + place] = arena[active + replica.actives]
            arena[replica.listed + tenant] = 0


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
