"""Virtual token counter: Vtc of policies/ordering/service.py in arrays.

R_SERVED, R_QUEUED_OF : of each tenant, weighted tokens and requests in the queue; R_MEMBERS_OF : how many are in the group.
R_MEMORY : were tokens made since the last look? Keys that have changed since are made anew when somebody asks who is next.
"""

from __future__ import annotations

from llmqsim.engine.compiled.blocks.kernels import slot_of
from llmqsim.engine.compiled.columns import ARRIVAL, PREEMPTIONS, PROMPT_TOKENS, TENANT_ID
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.orders import Vtc
from llmqsim.engine.compiled.orders.kernels import page, waiting, welcome
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
def joined(order, table, arena, base, row, slot, now):
    """The lift: who was away has saved up nothing."""
    served, queued, tenant = arena[base + R_SERVED], arena[base + R_QUEUED_OF], table[TENANT_ID, row]
    if arena[queued + tenant] == 0:
        least = NEVER
        for other in range(arena[G_TENANTS]):
            if arena[queued + other] > 0:
                least = min(least, arena[served + other])
        if least < NEVER:
            arena[served + tenant] = max(arena[served + tenant], least)
    arena[queued + tenant] += 1


@kernel
def left(order, table, arena, base, row, entered):
    """Its prompt is charged at once, so that the next in line may be of another tenant."""
    welcome(order, table, arena, base)
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
    if arena[base + R_MEMBERS] > 0:
        arena[base + R_MEMORY] = 1
        for tenant in range(arena[G_TENANTS]):
            made = steps * arena[arena[base + R_MEMBERS_OF] + tenant]
            arena[arena[base + R_SERVED] + tenant] += order.output_weight * made


page(Vtc, key_of, late_key_of, joined=joined, left=left, look_again=look_again, ran=ran, strode=strode)
