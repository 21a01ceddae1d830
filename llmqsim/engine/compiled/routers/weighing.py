"""Routers that look at more than requests in flight: what replicas report, work in flight, where prefixes have been.

router.load says which (forms.py). Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.columns import (
    ARRIVAL,
    FINISH,
    MAX_TOKENS,
    OUTCOME,
    PREDICTED,
    PROMPT_TOKENS,
    REPLICA_OF,
    UNFINISHED,
)
from llmqsim.engine.compiled.replica import deliver
from llmqsim.engine.compiled.routers import Kernels, Weighing, made_of
from llmqsim.engine.compiled.routers.counting import pick
from llmqsim.engine.compiled.routers.door import admit, note_end
from llmqsim.engine.compiled.world.limits import NEVER
from llmqsim.engine.compiled.world.replica import replica_at
from llmqsim.engine.compiled.world.router import (
    ASKED,
    MATCH,
    MEMORY_WORDS,
    OUTSTANDING,
    REMEMBERED_WORDS,
    REQUESTS,
    WORK,
    memory_at,
    remembered_at,
    report_at,
    router_at,
    since_at,
    work_at,
)
from llmqsim.jit import kernel
from llmqsim.policies import rules as policy_rules
from llmqsim.requests import UNSET


@kernel
def choose(table, run, arena, costs, row):
    """The least loaded, the one that fits its prefix best, or as routers choose that count requests alone."""
    if router_at(arena, run.router).load == MATCH:
        index = best_match(table, run, arena, costs, row)
        remember(run, arena, row, index)
    elif router_at(arena, run.router).load == OUTSTANDING:
        index = pick(run, arena, row)
    elif router_at(arena, run.router).load == ASKED:
        index = router_at(arena, run.router).choice
        router_at(arena, run.router).choice = -1
    else:
        index = least_loaded(run, arena, costs)
    begun(table, run, arena, row, index)
    return index


@kernel
def least_loaded(run, arena, costs):
    """Ties go to the lowest index."""
    best, least = 0, load_of(run, arena, costs, 0)
    for index in range(1, run.replicas):
        load = load_of(run, arena, costs, index)
        if load < least:
            best, least = index, load
    return best


@kernel
def load_of(run, arena, costs, index):
    """How much a replica has, as the policy sees it."""
    router = router_at(arena, run.router)
    if router.load == WORK:
        work = work_at(arena, router.work, index)
        return policy_rules.work(costs[router.weights], work.prompt_tokens, work.expected_tokens)
    report, since = report_at(arena, router.reports, index), since_at(arena, router.since, index)
    if router.load == REQUESTS:
        load, own = report.waiting + report.running, since.requests
    else:
        load, own = report.held, since.blocks
    return float(load + own) if router.count_own != 0 else float(load)


# What the router has sent, and what has ended.


@kernel
def begun(table, run, arena, row, index):
    """A request is sent to a replica."""
    router, now = router_at(arena, run.router), table[ARRIVAL, row]
    arena[run.outstanding + index] += 1
    if router.load == WORK:
        count_work(table, run, arena, row, index, 1)
    if router.period_ns > 0:
        count_since(table, run, arena, row, index, 1)
        router.seen_ns = max(router.seen_ns, now)
        if router.report_ns == NEVER:
            router.report_ns = (now // router.period_ns + 1) * router.period_ns


@kernel
def ended(table, run, arena, row):
    """A request is not at its replica any more, nor on its way there."""
    router, index = router_at(arena, run.router), table[REPLICA_OF, row]
    if router.ends != 0 and table[FINISH, row] != UNSET:
        note_end(table, run, arena, row)
    if router.load == WORK:
        count_work(table, run, arena, row, index, -1)
    if router.period_ns > 0:
        router.seen_ns = max(router.seen_ns, table[FINISH, row])
        if table[ARRIVAL, row] + run.before_ns >= router.reported_ns:
            count_since(table, run, arena, row, index, -1)


@kernel
def count_work(table, run, arena, row, index, sign):
    """Work in flight at a replica changes by that of a request."""
    work = work_at(arena, router_at(arena, run.router).work, index)
    work.prompt_tokens += sign * table[PROMPT_TOKENS, row]
    work.expected_tokens += sign * policy_rules.expected_answer(table[PREDICTED, row], table[MAX_TOKENS, row])


@kernel
def count_since(table, run, arena, row, index, sign):
    """What was sent to a replica since it reported changes by a request, and the blocks of its prompt."""
    since = since_at(arena, router_at(arena, run.router).since, index)
    since.requests += sign
    since.blocks += sign * rules.blocks_for(table[PROMPT_TOKENS, row], run.block_size)


# What replicas report.


@kernel
def report(run, arena):
    """All replicas say what they hold."""
    for index in range(run.replicas):
        replica = replica_at(arena, run.first_replica + index * run.stride)
        told = report_at(arena, router_at(arena, run.router).reports, index)
        told.waiting = replica.queued + replica.preempted + replica.swapped
        told.running = replica.running
        told.held = replica.usable_blocks - replica.free_blocks


@kernel
def look(table, run, arena, now):
    """Without reports every so often the router sees what replicas hold now.

    Who was sent before and arrives at this instant is there already.
    """
    router = router_at(arena, run.router)
    if router.reports == 0 or router.period_ns > 0:
        return
    for index in range(run.replicas):
        replica, next_ns = replica_at(arena, run.first_replica + index * run.stride), run.next_ns + index
        while replica.deliver_ns == now:
            deliver(table, run, arena, replica)
        arena[next_ns] = min(arena[next_ns], replica.form_ns)
    report(run, arena)


@kernel
def next_report(run, arena):
    """When replicas report next."""
    return router_at(arena, run.router).report_ns


@kernel
def hear_reports(table, run, arena, now):
    """Replicas report, and what the router counts itself begins anew with what is on its way.

    While requests are in flight, more reports follow.
    """
    router, busy = router_at(arena, run.router), 0
    report(run, arena)
    for index in range(run.replicas):
        since = since_at(arena, router.since, index)
        since.requests = since.blocks = 0
        busy += arena[run.outstanding + index]
    router.reported_ns = now
    router.report_ns = now + router.period_ns if busy > 0 else NEVER
    place, end = router.on_the_way, run.next_row if run.sent_rows == 0 else run.sent
    while place < end and table[ARRIVAL, sent_row(run, arena, place)] + run.before_ns < now:
        place += 1
    router.on_the_way = place
    for later in range(place, end):
        row = sent_row(run, arena, later)
        if table[OUTCOME, row] == UNFINISHED:
            count_since(table, run, arena, row, table[REPLICA_OF, row], 1)


@kernel
def sent_row(run, arena, place):
    """The request that was sent after `place` others: by number, or as its clients had it."""
    return place if run.sent_rows == 0 else arena[run.sent_rows + place]


# Where prefixes have been. A block's ancestors are used whenever it is, and count as used later: it is forgotten first.


@kernel
def memory_of(run, arena, index):
    """Where it lies what the router remembers of a replica."""
    router = router_at(arena, run.router)
    return router.memory + index * (MEMORY_WORDS + router.numbers * REMEMBERED_WORDS)


@kernel
def block_at(arena, memory, place):
    """Where the block is remembered whose number lies at `place`."""
    return memory + MEMORY_WORDS + arena[place] * REMEMBERED_WORDS


@kernel
def blocks_of(run, arena, row):
    """(first, end) of the places of a row's blocks."""
    router = router_at(arena, run.router)
    if router.blocks_of == 0:
        return 0, 0
    offset, blocks = router.blocks_of + row, router.blocks
    return blocks + arena[offset], blocks + arena[offset + 1]


@kernel
def sent_before(run, arena, row, index):
    """Leading blocks of a prompt that were sent to a replica and are remembered: often all or none, else by bisection."""
    first, end = blocks_of(run, arena, row)
    memory, low, high = memory_of(run, arena, index), first, end
    if first == end or remembered_at(arena, block_at(arena, memory, first)).newer == 0:
        return 0
    if remembered_at(arena, block_at(arena, memory, end - 1)).newer != 0:
        return end - first
    while low < high:
        middle = (low + high) // 2
        if remembered_at(arena, block_at(arena, memory, middle)).newer != 0:
            low = middle + 1
        else:
            high = middle
    return low - first


@kernel
def best_match(table, run, arena, costs, row):
    """The replica with the best score; ties go to fewer in flight, then to the lowest index."""
    counts, weights = run.outstanding, router_at(arena, run.router).weights
    least, total = arena[counts], 0
    for index in range(run.replicas):
        least = min(least, arena[counts + index])
        total += arena[counts + index]
    mean = max(1.0, total / run.replicas)
    best, lowest = -1, 0.0
    for index in range(run.replicas):
        cached = sent_before(run, arena, row, index) * run.block_size / table[PROMPT_TOKENS, row]
        ahead = (arena[counts + index] - least) / mean
        penalty = policy_rules.penalty(costs[weights], cached, costs[weights + 1], ahead)
        if best < 0 or penalty < lowest or (penalty == lowest and arena[counts + index] < arena[counts + best]):
            best, lowest = index, penalty
    return best


@kernel
def remember(run, arena, row, index):
    """A prompt's blocks are sent to a replica, the first one last; those used longest ago make room."""
    replica, memory = replica_at(arena, run.first_replica + index * run.stride), memory_of(run, arena, index)
    first, end = blocks_of(run, arena, row)
    for place in range(end - 1, first - 1, -1):
        block = block_at(arena, memory, place)
        if remembered_at(arena, block).newer != 0:
            forget(arena, memory, block)
        remembered_at(arena, block).newer = memory
        remembered_at(arena, block).older = memory_at(arena, memory).newest
        remembered_at(arena, memory_at(arena, memory).newest).newer = block
        memory_at(arena, memory).newest = block
        memory_at(arena, memory).count += 1
    while memory_at(arena, memory).count > replica.usable_blocks:
        forget(arena, memory, memory_at(arena, memory).oldest)


@kernel
def forget(arena, memory, block):
    """A block leaves the list of those that a replica is thought to have."""
    remembered_at(arena, remembered_at(arena, block).older).newer = remembered_at(arena, block).newer
    remembered_at(arena, remembered_at(arena, block).newer).older = remembered_at(arena, block).older
    remembered_at(arena, block).newer = 0
    memory_at(arena, memory).count -= 1


@kernel
def asks(run, arena):
    """Has the policy itself to be asked, and not been yet?"""
    return router_at(arena, run.router).load == ASKED and router_at(arena, run.router).choice < 0


made_of(Weighing, Kernels(choose, look, admit, asks, ended, next_report, hear_reports))
