"""Prefill and decode replicas from instant to instant: arrivals, hand-offs by pull, links. What cluster/ does, in arrays.

Events of an instant in their order (llmqsim/clock.py): steps end; requests and KV are delivered; what replicas and
routers asked for is done, by row; steps are formed, by replica. Queues between the parts are lists in order of time,
since every delay is a constant; only transfers end in another order than they began, and are a heap.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.split.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.engine.compiled.split.replica.kernels import commit, form_ahead, look, step_at, submit, tally, wake
from llmqsim.jit import kernel
from llmqsim.requests import HANDOFF_INDEX, INDEX, Handoff, Outcome

ARRIVAL, INTENDED = INDEX["arrival_ns"], INDEX["intended_ns"]
OUTCOME, REPLICA_OF, MAX_TOKENS = INDEX["outcome"], INDEX["replica"], INDEX["max_tokens"]
REJECTED = int(Outcome.REJECTED)
PREFILL_REPLICA = HANDOFF_INDEX["prefill_replica"]
PREFILLED, JOINED = HANDOFF_INDEX["prefilled_ns"], HANDOFF_INDEX["decode_joined_ns"]
TRANSFER_START, TRANSFER_END = HANDOFF_INDEX["transfer_start_ns"], HANDOFF_INDEX["transfer_end_ns"]
RESUMED, BECAME = HANDOFF_INDEX["resumed_ns"], HANDOFF_INDEX["handoff"]
TRANSFER_BLOCKS, TRANSFER_BYTES = HANDOFF_INDEX["transfer_blocks"], HANDOFF_INDEX["transfer_bytes"]
PENDING, HANDED, ENDED = int(Handoff.PENDING), int(Handoff.DONE), int(Handoff.ENDED)


@kernel
def replica_at(arena, index):
    """Where a replica lies."""
    return arena[G_FIRST_REPLICA] + index * arena[G_STRIDE]


@kernel
def choose(arena, pool):
    """The router of a pool (0 prefill, 1 decode): round robin, or the fewest in flight. Counts the request there."""
    first = arena[G_PREFILLS] if pool == 1 else 0
    count = arena[G_REPLICAS] - first if pool == 1 else arena[G_PREFILLS]
    best = arena[G_TURN + pool]
    if arena[G_IN_TURN + pool] != 0:
        arena[G_TURN + pool] = (best + 1) % count
    else:
        best = 0
        for index in range(1, count):
            fewest = arena[replica_at(arena, first + best) + R_OUTSTANDING]
            if arena[replica_at(arena, first + index) + R_OUTSTANDING] < fewest:
                best = index
    arena[replica_at(arena, first + best) + R_OUTSTANDING] += 1
    return first + best


@kernel
def append(arena, ring, time, row):
    """Put (time, row) at the end of a list; `ring` is the word of its place, followed by its head and tail."""
    place = arena[ring] + 2 * arena[ring + 2]
    arena[place], arena[place + 1] = time, row
    arena[ring + 2] += 1


@kernel
def first_time(arena, ring):
    """Time of the first entry of a list."""
    if arena[ring + 1] == arena[ring + 2]:
        return NEVER
    return arena[arena[ring] + 2 * arena[ring + 1]]


@kernel
def take_first(arena, ring):
    """Take the first entry off a list; returns its row."""
    row = arena[arena[ring] + 2 * arena[ring + 1] + 1]
    arena[ring + 1] += 1
    return row


@kernel
def push_transfer(arena, time, row):
    """Add the end of a transfer to the heap of (time, row)."""
    heap, place = arena[G_TRANSFERS], arena[G_TRANSFERS_SIZE]
    arena[G_TRANSFERS_SIZE] += 1
    while place > 0 and arena[heap + 2 * ((place - 1) // 2)] > time:
        parent = (place - 1) // 2
        arena[heap + 2 * place], arena[heap + 2 * place + 1] = arena[heap + 2 * parent], arena[heap + 2 * parent + 1]
        place = parent
    arena[heap + 2 * place], arena[heap + 2 * place + 1] = time, row


@kernel
def pop_transfer(arena):
    """Take the earliest transfer off the heap; returns its row."""
    heap, size = arena[G_TRANSFERS], arena[G_TRANSFERS_SIZE] - 1
    arena[G_TRANSFERS_SIZE] = size
    row = arena[heap + 1]
    time, last = arena[heap + 2 * size], arena[heap + 2 * size + 1]
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and arena[heap + 2 * child + 2] < arena[heap + 2 * child]:
            child += 1
        if arena[heap + 2 * child] >= time:
            break
        arena[heap + 2 * place], arena[heap + 2 * place + 1] = arena[heap + 2 * child], arena[heap + 2 * child + 1]
        place = child
    arena[heap + 2 * place], arena[heap + 2 * place + 1] = time, last
    return row


@kernel
def sort(arena, start, count):
    """Sort a short list of rows in place."""
    for place in range(1, count):
        row, at = arena[start + place], place
        while at > 0 and arena[start + at - 1] > row:
            arena[start + at] = arena[start + at - 1]
            at -= 1
        arena[start + at] = row


@kernel
def over_link(arena, link, now, size, fragments):
    """Carry bytes behind all that a link was asked for before; returns when they are across."""
    at = arena[G_LINKS] + link * LINK
    begin = max(now, arena[at + K_FREE_NS])
    taken = rules.carry_ns(size, fragments, arena[G_BYTES_PER_US], arena[G_PER_FRAGMENT_NS])
    arena[at + K_FREE_NS] = begin + taken
    arena[at + K_TRANSFERS] += 1
    arena[at + K_BYTES] += size
    arena[at + K_BUSY_NS] += taken
    arena[at + K_QUEUED_NS] += begin - now
    return begin + taken


@kernel
def pull(table, marks, arena, state, row, now):
    """A decode replica reads the KV of a request."""
    source, taker = marks[PREFILL_REPLICA, row], table[REPLICA_OF, row]
    blocks = rules.blocks_for(state[row, S_PROMPT], arena[replica_at(arena, taker) + R_BLOCK_SIZE])
    size, fragments = blocks * arena[G_LANE_BYTES], blocks * arena[G_FRAGMENTS]
    if arena[G_SHARED] != 0:
        until = over_link(arena, 0, now, size, fragments)
    else:
        until = max(over_link(arena, source, now, size, fragments), over_link(arena, taker, now, size, fragments))
    marks[TRANSFER_START, row] = now
    marks[TRANSFER_BLOCKS, row] = blocks
    marks[TRANSFER_BYTES, row] = blocks * arena[G_BLOCK_BYTES]
    push_transfer(arena, until + arena[G_LATENCY_NS], row)


@kernel
def do_asked(table, marks, arena, state, now):
    """What was asked for in this instant, by row: transfers begin, and answers of prefill engines are sent on."""
    sort(arena, arena[G_ASKED], arena[G_ASKED_SIZE])
    for place in range(arena[G_ASKED_SIZE]):
        pull(table, marks, arena, state, arena[arena[G_ASKED] + place], now)
    arena[G_ASKED_SIZE] = 0
    sort(arena, arena[G_GO_ON], arena[G_GO_ON_SIZE])
    for place in range(arena[G_GO_ON_SIZE]):
        row = arena[arena[G_GO_ON] + place]
        table[REPLICA_OF, row] = choose(arena, 1)
        if arena[G_BEFORE_NS + 1] > 0:
            append(arena, G_ONWARD, now + arena[G_BEFORE_NS + 1], row)
        else:
            join_decode(table, marks, arena, state, row, now)
    arena[G_GO_ON_SIZE] = 0


@kernel
def go_on(arena, row):
    """A prefill engine's answer is there: the request is sent on, after all that ends in this instant."""
    arena[arena[G_GO_ON] + arena[G_GO_ON_SIZE]] = row
    arena[G_GO_ON_SIZE] += 1


@kernel
def join_decode(table, marks, arena, state, row, now):
    """A request reaches its decode replica."""
    marks[JOINED, row] = now
    state[row, S_KNOWN] = state[row, S_PROMPT] + arena[G_FIRST_TOKEN_HERE]
    state[row, S_COMPUTED] = 0
    state[row, S_MAX] = table[MAX_TOKENS, row]
    state[row, S_HIGH_WATER] = max(state[row, S_HIGH_WATER], state[row, S_PROMPT])
    submit(arena, state, replica_at(arena, table[REPLICA_OF, row]), row, now)


@kernel
def fetched(table, marks, arena, state, row, now):
    """All KV of a request is where it decodes; the prefill replica has its blocks back."""
    marks[TRANSFER_END, row] = now
    marks[BECAME, row] = HANDED
    source = replica_at(arena, marks[PREFILL_REPLICA, row])
    tally(arena, source, now)
    arena[source + R_FREE] += state[row, S_LENT]
    arena[source + R_LENT] -= 1
    state[row, S_LENT] = 0
    wake(arena, source, now)
    taker = replica_at(arena, table[REPLICA_OF, row])
    tally(arena, taker, now)
    state[row, S_COMPUTED] = state[row, S_KNOWN] - 1
    state[row, S_STAGE] = LOADED
    arena[taker + R_LOADING] -= 1
    arena[taker + R_LOADED] += 1
    wake(arena, taker, now)


@kernel
def end_steps(table, marks, arena, state, gaps, log, params_p, params_d, now):
    """All steps that end now."""
    for index in range(arena[G_REPLICAS]):
        at = replica_at(arena, index)
        if arena[at + R_STEPS] == 0 or arena[step_at(arena, at, 0) + T_END_NS] != now:
            continue
        if index >= arena[G_PREFILLS]:
            commit(arena, state, gaps, log, params_d, at)
            continue
        step = commit(arena, state, gaps, log, params_p, at)
        for place in range(arena[step + T_SAMPLED]):
            row = arena[step + STEP + place]
            if state[row, S_STAGE] == FINISHED and marks[BECAME, row] == PENDING:
                marks[BECAME, row] = ENDED
            elif state[row, S_STAGE] == LENT and marks[PREFILLED, row] < 0:
                marks[PREFILLED, row] = now
                if arena[G_AFTER_NS] > 0:
                    append(arena, G_ANSWERED, now + arena[G_AFTER_NS], row)
                else:
                    go_on(arena, row)


@kernel
def deliver(table, marks, arena, state, now):
    """Everything that arrives somewhere now."""
    while arena[G_NEXT_ROW] < arena[G_ROWS]:
        row = arena[G_NEXT_ROW]
        if table[OUTCOME, row] != REJECTED:
            if table[INTENDED, row] > now:
                break
            table[ARRIVAL, row] = now
            marks[BECAME, row] = PENDING
            marks[PREFILL_REPLICA, row] = choose(arena, 0)
            append(arena, G_SENT, now + arena[G_BEFORE_NS], row)
        arena[G_NEXT_ROW] += 1
    while first_time(arena, G_SENT) == now:
        row = take_first(arena, G_SENT)
        submit(arena, state, replica_at(arena, marks[PREFILL_REPLICA, row]), row, now)
    while first_time(arena, G_ANSWERED) == now:
        go_on(arena, take_first(arena, G_ANSWERED))
    while first_time(arena, G_ONWARD) == now:
        join_decode(table, marks, arena, state, take_first(arena, G_ONWARD), now)
    while arena[G_TRANSFERS_SIZE] > 0 and arena[arena[G_TRANSFERS]] == now:
        fetched(table, marks, arena, state, pop_transfer(arena), now)
    do_asked(table, marks, arena, state, now)


@kernel
def next_time(table, arena):
    """When the next thing happens."""
    now = min(first_time(arena, G_SENT), first_time(arena, G_ANSWERED), first_time(arena, G_ONWARD))
    row = arena[G_NEXT_ROW]
    while row < arena[G_ROWS] and table[OUTCOME, row] == REJECTED:
        row += 1
    arena[G_NEXT_ROW] = row
    if row < arena[G_ROWS]:
        now = min(now, table[INTENDED, row])
    if arena[G_TRANSFERS_SIZE] > 0:
        now = min(now, arena[arena[G_TRANSFERS]])
    for index in range(arena[G_REPLICAS]):
        at = replica_at(arena, index)
        now = min(now, arena[at + R_FORM_NS])
        if arena[at + R_STEPS] > 0:
            now = min(now, arena[step_at(arena, at, 0) + T_END_NS])
    return now


@kernel
def run(table, marks, arena, state, gaps, log, costs_p, params_p, costs_d, params_d, until_ns):
    """Everything before `until_ns`, instant by instant; say why it stopped."""
    while True:
        if arena[G_LOG_ROWS] > 0 and arena[G_LOGGED] + arena[G_REPLICAS] > arena[G_LOG_ROWS]:
            return LOG_IS_FULL
        if arena[G_PREEMPTED_CACHED] != 0:
            return PREEMPTS
        now = next_time(table, arena)
        if now >= until_ns:
            return DONE
        if arena[G_LONGEST_NS] > LONGEST_STEP or now > LAST_TIME:
            return TOO_LONG
        arena[G_NOW] = now
        end_steps(table, marks, arena, state, gaps, log, params_p, params_d, now)
        deliver(table, marks, arena, state, now)
        for index in range(arena[G_REPLICAS]):
            at = replica_at(arena, index)
            if arena[at + R_FORM_NS] != now:
                continue
            if index < arena[G_PREFILLS]:
                formed = form_ahead(arena, state, marks, RESUMED, costs_p, params_p, at, now)
            else:
                formed = form_ahead(arena, state, marks, RESUMED, costs_d, params_d, at, now)
            if not formed:
                return STUCK
            if arena[G_ASKED_SIZE] > 0:
                do_asked(table, marks, arena, state, now)


@kernel
def close(arena, state, now):
    """The clock stops: settle what is still here."""
    for index in range(arena[G_REPLICAS]):
        at = replica_at(arena, index)
        tally(arena, at, now)
        if arena[at + R_STEPS] > 0:
            arena[at + U_CUT] = now - arena[step_at(arena, at, 0) + T_START_NS]
        look(arena, state, at, now)
        for place in range(arena[at + R_PREEMPTED]):
            row = arena[arena[at + R_STACK] + place]
            state[row, S_WAIT_PREEMPTED_NS] += now - state[row, S_PREEMPTED_NS]
        for place in range(arena[at + R_QUEUED]):
            row = arena[arena[at + R_HEAP] + place]
            for reason in range(4):
                state[row, S_WAIT + reason] += arena[at + R_CLOCKS + reason] - state[row, S_ENTRY + reason]
