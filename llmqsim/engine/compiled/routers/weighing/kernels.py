"""Routers that look at more than requests in flight: what replicas report, work in flight, where prefixes have been.

F_LOAD says which (forms.py). Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.columns import ARRIVAL, FINISH, MAX_TOKENS, OUTCOME, PREDICTED, PROMPT_TOKENS, REPLICA_OF, UNFINISHED
from llmqsim.engine.compiled.kernels import deliver
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.routers import Kernels, Weighing, made_of
from llmqsim.engine.compiled.routers.door.kernels import admit, note_end
from llmqsim.engine.compiled.routers.kernels import pick
from llmqsim.engine.compiled.routers.layout import *  # noqa: F403
from llmqsim.jit import kernel
from llmqsim.policies import rules as policy_rules
from llmqsim.requests import UNSET


@kernel
def choose(table, arena, costs, row):
    """The least loaded, the one that fits its prefix best, or as routers choose that count requests alone."""
    if arena[arena[G_ROUTER] + F_LOAD] == MATCH:
        index = best_match(table, arena, costs, row)
        remember(arena, row, index)
    elif arena[arena[G_ROUTER] + F_LOAD] == OUTSTANDING:
        index = pick(arena, row)
    elif arena[arena[G_ROUTER] + F_LOAD] == ASKED:
        index = arena[arena[G_ROUTER] + F_CHOICE]
        arena[arena[G_ROUTER] + F_CHOICE] = -1
    else:
        index = least_loaded(arena, costs)
    begun(table, arena, row, index)
    return index


@kernel
def least_loaded(arena, costs):
    """Ties go to the lowest index."""
    best, least = 0, load_of(arena, costs, 0)
    for index in range(1, arena[G_REPLICAS]):
        load = load_of(arena, costs, index)
        if load < least:
            best, least = index, load
    return best


@kernel
def load_of(arena, costs, index):
    """How much a replica has, as the policy sees it."""
    router = arena[G_ROUTER]
    if arena[router + F_LOAD] == WORK:
        work = arena[router + F_WORK] + 2 * index
        return policy_rules.work(costs[arena[router + F_WEIGHTS]], arena[work], arena[work + 1])
    report, since = arena[router + F_REPORTS] + index * REPORT, arena[router + F_SINCE] + 2 * index
    if arena[router + F_LOAD] == REQUESTS:
        load, own = arena[report + P_WAITING] + arena[report + P_RUNNING], arena[since]
    else:
        load, own = arena[report + P_HELD], arena[since + 1]
    return float(load + own) if arena[router + F_COUNT_OWN] != 0 else float(load)


# What the router has sent, and what has ended.


@kernel
def begun(table, arena, row, index):
    """A request is sent to a replica."""
    router, now = arena[G_ROUTER], table[ARRIVAL, row]
    arena[arena[G_OUTSTANDING] + index] += 1
    if arena[router + F_LOAD] == WORK:
        count_work(table, arena, row, index, 1)
    if arena[router + F_PERIOD_NS] > 0:
        count_since(table, arena, row, index, 1)
        arena[router + F_SEEN_NS] = max(arena[router + F_SEEN_NS], now)
        if arena[router + F_REPORT_NS] == NEVER:
            arena[router + F_REPORT_NS] = (now // arena[router + F_PERIOD_NS] + 1) * arena[router + F_PERIOD_NS]


@kernel
def ended(table, arena, row):
    """A request is not at its replica any more, nor on its way there."""
    router, index = arena[G_ROUTER], table[REPLICA_OF, row]
    if arena[router + F_ENDS] != 0 and table[FINISH, row] != UNSET:
        note_end(table, arena, row)
    if arena[router + F_LOAD] == WORK:
        count_work(table, arena, row, index, -1)
    if arena[router + F_PERIOD_NS] > 0:
        arena[router + F_SEEN_NS] = max(arena[router + F_SEEN_NS], table[FINISH, row])
        if table[ARRIVAL, row] + arena[G_BEFORE_NS] >= arena[router + F_REPORTED_NS]:
            count_since(table, arena, row, index, -1)


@kernel
def count_work(table, arena, row, index, sign):
    """Work in flight at a replica changes by that of a request."""
    work = arena[arena[G_ROUTER] + F_WORK] + 2 * index
    arena[work] += sign * table[PROMPT_TOKENS, row]
    arena[work + 1] += sign * policy_rules.expected_answer(table[PREDICTED, row], table[MAX_TOKENS, row])


@kernel
def count_since(table, arena, row, index, sign):
    """What was sent to a replica since it reported changes by a request, and the blocks of its prompt."""
    since = arena[arena[G_ROUTER] + F_SINCE] + 2 * index
    arena[since] += sign
    arena[since + 1] += sign * rules.blocks_for(table[PROMPT_TOKENS, row], arena[G_BLOCK_SIZE])


# What replicas report.


@kernel
def report(arena):
    """All replicas say what they hold."""
    for index in range(arena[G_REPLICAS]):
        base = arena[G_FIRST_REPLICA] + index * arena[G_STRIDE]
        told = arena[arena[G_ROUTER] + F_REPORTS] + index * REPORT
        arena[told + P_WAITING] = arena[base + R_QUEUED] + arena[base + R_PREEMPTED] + arena[base + R_SWAPPED]
        arena[told + P_RUNNING] = arena[base + R_RUNNING]
        arena[told + P_HELD] = arena[base + R_USABLE_BLOCKS] - arena[base + R_FREE_BLOCKS]


@kernel
def look(table, arena, now):
    """Without reports every so often the router sees what replicas hold now.

    Who was sent before and arrives at this instant is there already.
    """
    router = arena[G_ROUTER]
    if arena[router + F_REPORTS] == 0 or arena[router + F_PERIOD_NS] > 0:
        return
    for index in range(arena[G_REPLICAS]):
        base, next_ns = arena[G_FIRST_REPLICA] + index * arena[G_STRIDE], arena[G_NEXT_NS] + index
        while arena[base + R_DELIVER_NS] == now:
            deliver(table, arena, base)
        arena[next_ns] = min(arena[next_ns], arena[base + R_FORM_NS])
    report(arena)


@kernel
def next_report(arena):
    """When replicas report next."""
    return arena[arena[G_ROUTER] + F_REPORT_NS]


@kernel
def hear_reports(table, arena, now):
    """Replicas report, and what the router counts itself begins anew with what is on its way.

    While requests are in flight, more reports follow.
    """
    router, busy = arena[G_ROUTER], 0
    report(arena)
    for index in range(arena[G_REPLICAS]):
        since = arena[router + F_SINCE] + 2 * index
        arena[since] = arena[since + 1] = 0
        busy += arena[arena[G_OUTSTANDING] + index]
    arena[router + F_REPORTED_NS] = now
    arena[router + F_REPORT_NS] = now + arena[router + F_PERIOD_NS] if busy > 0 else NEVER
    place, end = arena[router + F_ON_THE_WAY], arena[G_NEXT_ROW] if arena[G_SENT_ROWS] == 0 else arena[G_SENT]
    while place < end and table[ARRIVAL, sent_row(arena, place)] + arena[G_BEFORE_NS] < now:
        place += 1
    arena[router + F_ON_THE_WAY] = place
    for later in range(place, end):
        row = sent_row(arena, later)
        if table[OUTCOME, row] == UNFINISHED:
            count_since(table, arena, row, table[REPLICA_OF, row], 1)


@kernel
def sent_row(arena, place):
    """The request that was sent after `place` others: by number, or as its clients had it."""
    return place if arena[G_SENT_ROWS] == 0 else arena[arena[G_SENT_ROWS] + place]


# Where prefixes have been. A block's ancestors are used whenever it is, and count as used later: it is forgotten first.


@kernel
def memory_of(arena, index):
    """Where lies what the router remembers of a replica."""
    router = arena[G_ROUTER]
    return arena[router + F_MEMORY] + index * (MEMORY + arena[router + F_NUMBERS] * BLOCK)


@kernel
def block_at(arena, memory, place):
    """Where the block is remembered whose number lies at `place`."""
    return memory + MEMORY + arena[place] * BLOCK


@kernel
def blocks_of(arena, row):
    """(first, end) of the places of a row's blocks."""
    router = arena[G_ROUTER]
    if arena[router + F_BLOCKS_OF] == 0:
        return 0, 0
    offset, blocks = arena[router + F_BLOCKS_OF] + row, arena[router + F_BLOCKS]
    return blocks + arena[offset], blocks + arena[offset + 1]


@kernel
def sent_before(arena, row, index):
    """Leading blocks of a prompt that were sent to a replica and are remembered: often all or none, else by bisection."""
    first, end = blocks_of(arena, row)
    memory, low, high = memory_of(arena, index), first, end
    if first == end or arena[block_at(arena, memory, first) + B_NEWER] == 0:
        return 0
    if arena[block_at(arena, memory, end - 1) + B_NEWER] != 0:
        return end - first
    while low < high:
        middle = (low + high) // 2
        if arena[block_at(arena, memory, middle) + B_NEWER] != 0:
            low = middle + 1
        else:
            high = middle
    return low - first


@kernel
def best_match(table, arena, costs, row):
    """The replica with the best score; ties go to fewer in flight, then to the lowest index."""
    counts, weights = arena[G_OUTSTANDING], arena[arena[G_ROUTER] + F_WEIGHTS]
    least, total = arena[counts], 0
    for index in range(arena[G_REPLICAS]):
        least = min(least, arena[counts + index])
        total += arena[counts + index]
    mean = max(1.0, total / arena[G_REPLICAS])
    best, lowest = -1, 0.0
    for index in range(arena[G_REPLICAS]):
        cached = sent_before(arena, row, index) * arena[G_BLOCK_SIZE] / table[PROMPT_TOKENS, row]
        ahead = (arena[counts + index] - least) / mean
        penalty = policy_rules.penalty(costs[weights], cached, costs[weights + 1], ahead)
        if best < 0 or penalty < lowest or (penalty == lowest and arena[counts + index] < arena[counts + best]):
            best, lowest = index, penalty
    return best


@kernel
def remember(arena, row, index):
    """A prompt's blocks are sent to a replica, the first one last; those used longest ago make room."""
    base, memory = arena[G_FIRST_REPLICA] + index * arena[G_STRIDE], memory_of(arena, index)
    first, end = blocks_of(arena, row)
    for place in range(end - 1, first - 1, -1):
        block = block_at(arena, memory, place)
        if arena[block + B_NEWER] != 0:
            forget(arena, memory, block)
        arena[block + B_NEWER] = memory
        arena[block + B_OLDER] = arena[memory + M_NEWEST]
        arena[arena[memory + M_NEWEST] + B_NEWER] = block
        arena[memory + M_NEWEST] = block
        arena[memory + M_COUNT] += 1
    while arena[memory + M_COUNT] > arena[base + R_USABLE_BLOCKS]:
        forget(arena, memory, arena[memory + M_OLDEST])


@kernel
def forget(arena, memory, block):
    """A block leaves the list of those that a replica is thought to have."""
    arena[arena[block + B_OLDER] + B_NEWER] = arena[block + B_NEWER]
    arena[arena[block + B_NEWER] + B_OLDER] = arena[block + B_OLDER]
    arena[block + B_NEWER] = 0
    arena[memory + M_COUNT] -= 1


@kernel
def asks(arena):
    """Has the policy itself to be asked, and not been yet?"""
    return arena[arena[G_ROUTER] + F_LOAD] == ASKED and arena[arena[G_ROUTER] + F_CHOICE] < 0


made_of(Weighing, Kernels(choose, look, admit, asks, ended, next_report, hear_reports))
