"""Requests between client, routers and replicas: what cluster/door.py and handoff.py do, in arrays.

Arguments that all share: table, int64[columns, rows]; marks, int64[columns, rows], the hand-offs; others as in
replica/kernels.py.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.columns import ARRIVAL, MAX_TOKENS
from llmqsim.engine.compiled.split.blocks.kernels import release
from llmqsim.engine.compiled.split.entry.kernels import known_on_arrival
from llmqsim.engine.compiled.split.events.kernels import append, note, push, sort
from llmqsim.engine.compiled.split.layout import *
from llmqsim.engine.compiled.split.links.kernels import PREFILL_REPLICA, REPLICA_OF, carry
from llmqsim.engine.compiled.split.queue.kernels import submit, tally, wake
from llmqsim.jit import kernel
from llmqsim.requests import HANDOFF_INDEX, Handoff

PREFILLED, JOINED = HANDOFF_INDEX["prefilled_ns"], HANDOFF_INDEX["decode_joined_ns"]
TRANSFER_END = HANDOFF_INDEX["transfer_end_ns"]
BECAME = HANDOFF_INDEX["handoff"]
PENDING, HANDED, ENDED, EXPIRED = int(Handoff.PENDING), int(Handoff.DONE), int(Handoff.ENDED), int(Handoff.EXPIRED)
IS_FETCHED, IS_SENT, KINDS = range(3)
"""what happens later to a request: its KV is where it decodes; it reaches its prefill replica"""


# Routers.


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
def set_out(table, marks, arena, state, row, now):
    """A request arrives: to both pools, or, with a short prompt, to the one that decodes."""
    arena[G_LAST_CLIENT_NS] = max(arena[G_LAST_CLIENT_NS], now)
    table[ARRIVAL, row] = now
    if state[row, S_PROMPT] < arena[G_LEAST_PROMPT]:
        state[row, S_MAX] = table[MAX_TOKENS, row]
        table[REPLICA_OF, row] = choose(arena, 1)
        send_to_decode(table, marks, arena, state, row, now)
        return
    marks[BECAME, row] = PENDING
    state[row, S_COMING] = EXPECTED
    marks[PREFILL_REPLICA, row] = choose(arena, 0)
    if arena[G_CHOOSES_EARLY] != 0:
        table[REPLICA_OF, row] = choose(arena, 1)
    if arena[G_TRANSFER] != PULL:
        send_to_decode(table, marks, arena, state, row, now)
    elif arena[G_BEFORE_NS] > 0:
        append(arena, G_SENT, now + arena[G_BEFORE_NS], row)
    else:
        join_prefill(marks, arena, state, row, now)


@kernel
def join_prefill(marks, arena, state, row, now):
    """A request reaches its prefill replica."""
    submit(arena, state, replica_at(arena, marks[PREFILL_REPLICA, row]), row, now)


@kernel
def send_to_decode(table, marks, arena, state, row, now):
    """A request goes to the decode replica that was chosen for it."""
    if arena[G_BEFORE_NS + 1] > 0:
        append(arena, G_ONWARD, now + arena[G_BEFORE_NS + 1], row)
    else:
        join_decode(table, marks, arena, state, row, now)


@kernel
def join_decode(table, marks, arena, state, row, now):
    """A request reaches its decode replica."""
    if marks[BECAME, row] != 0:
        marks[JOINED, row] = now
        if arena[G_TRANSFER] == PULL:
            take_over(table, arena, state, row)
    submit(arena, state, replica_at(arena, table[REPLICA_OF, row]), row, now)


@kernel
def take_over(table, arena, state, row):
    """A request whose prompt was computed elsewhere is what it is where it decodes, as yet without KV."""
    state[row, S_KNOWN] = known_on_arrival(arena, state, row)
    state[row, S_COMPUTED] = 0
    state[row, S_MAX] = table[MAX_TOKENS, row]
    state[row, S_HIGH_WATER] = state[row, S_PROMPT]


# Transfers.


@kernel
def pull(table, marks, arena, state, row, now):
    """A decode replica reads the KV of a request."""
    blocks = rules.blocks_for(state[row, S_PROMPT], arena[replica_at(arena, table[REPLICA_OF, row]) + R_BLOCK_SIZE])
    push(arena, G_LATER, carry(table, marks, arena, row, blocks, now, now), KINDS * row + IS_FETCHED)


@kernel
def send_chunk(table, marks, arena, state, row, now):
    """A prefill replica sends the blocks that a chunk has filled, the last one of a prompt also half full."""
    size = arena[replica_at(arena, marks[PREFILL_REPLICA, row]) + R_BLOCK_SIZE]
    tokens, prompt = state[row, S_CHUNK_TOKENS], state[row, S_PROMPT]
    filled = rules.blocks_for(prompt, size) if tokens >= prompt else tokens // size
    blocks = filled - state[row, S_SENT_BLOCKS]
    if blocks > 0:
        state[row, S_SENT_BLOCKS] = filled
        state[row, S_UNTIL_NS] = carry(table, marks, arena, row, blocks, state[row, S_CHUNK_NS], now)
    if state[row, S_STAGE] == LENT:
        push(arena, G_LATER, max(state[row, S_UNTIL_NS], now), KINDS * row + IS_FETCHED)


# What follows.


@kernel
def let_prefill(marks, arena, state, table, row, now):
    """Push: blocks are taken where it decodes, so that the prompt may start."""
    due = table[ARRIVAL, row] + arena[G_BEFORE_NS]
    if due > now:
        push(arena, G_LATER, due, KINDS * row + IS_SENT)
    else:
        join_prefill(marks, arena, state, row, now)


@kernel
def go_on(table, marks, arena, state, row, now):
    """Pull: a prefill engine's answer is there, so that the request is sent on."""
    if arena[G_CHOOSES_EARLY] == 0:
        table[REPLICA_OF, row] = choose(arena, 1)
    send_to_decode(table, marks, arena, state, row, now)


@kernel
def do_asked(table, marks, arena, state, now):
    """What was asked for in this instant, by row: transfers, prompts that may start, requests that are sent on."""
    sort(arena, arena[G_ASKED], arena[G_ASKED_SIZE])
    for place in range(arena[G_ASKED_SIZE]):
        row = arena[arena[G_ASKED] + place]
        if arena[G_TRANSFER] == PULL:
            pull(table, marks, arena, state, row, now)
        else:
            let_prefill(marks, arena, state, table, row, now)
    arena[G_ASKED_SIZE] = 0
    sort(arena, arena[G_CHUNKS], arena[G_CHUNKS_SIZE])
    for place in range(arena[G_CHUNKS_SIZE]):
        send_chunk(table, marks, arena, state, arena[arena[G_CHUNKS] + place], now)
    arena[G_CHUNKS_SIZE] = 0
    sort(arena, arena[G_GO_ON], arena[G_GO_ON_SIZE])
    for place in range(arena[G_GO_ON_SIZE]):
        go_on(table, marks, arena, state, arena[arena[G_GO_ON] + place], now)
    arena[G_GO_ON_SIZE] = 0


@kernel
def prefilled(marks, arena, row, now):
    """A prompt is computed, its blocks are lent. Pull: the answer goes back to whoever sends the request on."""
    marks[PREFILLED, row] = now
    if arena[G_TRANSFER] != PULL:
        return
    if arena[G_LEASE_NS] < NEVER:
        append(arena, G_LEASES, now + arena[G_LEASE_NS], row)
    if arena[G_AFTER_NS] > 0:
        append(arena, G_ANSWERED, now + arena[G_AFTER_NS], row)
    else:
        note(arena, G_GO_ON, row)


@kernel
def give_back(marks, arena, state, row, now):
    """A prefill replica has the blocks back that it lent."""
    source = replica_at(arena, marks[PREFILL_REPLICA, row])
    tally(arena, source, now)
    release(arena, state, source, state[row, S_HELD], state[row, S_PROMPT] // arena[source + R_BLOCK_SIZE], OF_NOBODY)
    state[row, S_HELD] = 0
    arena[source + R_LENT] -= 1
    wake(arena, source, now)


@kernel
def fetched(table, marks, arena, state, row, now):
    """All KV of a request is where it decodes; the prefill replica has its blocks back."""
    marks[TRANSFER_END, row] = now
    marks[BECAME, row] = HANDED
    give_back(marks, arena, state, row, now)
    taker = replica_at(arena, table[REPLICA_OF, row])
    tally(arena, taker, now)
    if arena[G_TRANSFER] != PULL:
        take_over(table, arena, state, row)
        for reason in range(4):
            state[row, S_WAIT + reason] += state[row, S_WAITED + reason]
    if arena[G_FIRST_TOKEN] == WITH_KV:
        state[row, S_FIRST_TOKEN_NS] = state[row, S_LAST_NS] = now
        state[row, S_GENERATED] = 1
    state[row, S_COMPUTED] = state[row, S_KNOWN] - 1
    state[row, S_HELD] = state[row, S_TAKEN]
    state[row, S_COMING] = LOADED
    arena[taker + R_LOADING] -= 1
    arena[taker + R_LOADED] += 1
    wake(arena, taker, now)


@kernel
def expire(marks, arena, state, row, now):
    """Nobody has asked for the KV in time: its blocks are free, and the decode replica computes it again."""
    if state[row, S_COMING] == EXPECTED:
        state[row, S_COMING] = OWN
        marks[BECAME, row] = EXPIRED
        give_back(marks, arena, state, row, now)


@kernel
def ended_early(table, marks, arena, state, row, now):
    """A request ended where its prompt was computed. The decode replica needs no blocks for it, if it was chosen."""
    marks[BECAME, row] = ENDED
    if arena[G_CHOOSES_EARLY] == 0:
        return
    taker = replica_at(arena, table[REPLICA_OF, row])
    arena[taker + R_OUTSTANDING] -= 1
    if state[row, S_COMING] == LOADING:
        tally(arena, taker, now)
        forget_incoming(arena, taker, row)
        arena[taker + R_LOADING] -= 1
        arena[taker + R_HELD_INCOMING] -= state[row, S_TAKEN]
        release(arena, state, taker, state[row, S_TAKEN], 0, OF_NOBODY)
        wake(arena, taker, now)


@kernel
def forget_incoming(arena, at, row):
    """A request is not among those any more whose KV is to come; the order of the others stays."""
    rows, kept = arena[at + R_INCOMING_ROWS], 0
    for place in range(arena[at + R_INCOMING]):
        if arena[rows + place] != row:
            arena[rows + kept] = arena[rows + place]
            kept += 1
    arena[at + R_INCOMING] = kept
