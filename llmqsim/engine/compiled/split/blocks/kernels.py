"""Free blocks of a replica in the order in which they are used again: what kv/prefix.py does where no prompts are shared.

Then only a preempted request looks for blocks, its own, and only when it enters again. So free blocks are a list of runs,
used from its head: runs that nobody will look for (neighbours become one), and the leading full blocks of each preempted
request. They are freed tail first, so that what is left of its run is always the leading part. Arguments as in
replica/kernels.py.
"""

from __future__ import annotations

from llmqsim.engine.compiled.split.layout import *
from llmqsim.jit import kernel


@kernel
def node_at(arena, at, node):
    """Where a node lies."""
    return arena[at + R_NODES] + node * NODE


@kernel
def add_run(arena, at, owner, count, before):
    """Put a run into the list before a node (ENDS: at the tail); returns its node."""
    node = arena[at + R_SPARE_NODE]
    if node != ENDS:
        arena[at + R_SPARE_NODE] = arena[node_at(arena, at, node) + N_NEXT]
    else:
        arena[at + R_NODES_USED] += 1
        node = arena[at + R_NODES_USED]
    place, after = node_at(arena, at, node), node_at(arena, at, before)
    previous = arena[after + N_PREV]
    arena[place + N_OWNER], arena[place + N_COUNT] = owner, count
    arena[place + N_PREV], arena[place + N_NEXT] = previous, before
    arena[after + N_PREV] = node
    arena[node_at(arena, at, previous) + N_NEXT] = node
    return node


@kernel
def drop_run(arena, at, node):
    """Take a run out of the list."""
    place = node_at(arena, at, node)
    arena[node_at(arena, at, arena[place + N_PREV]) + N_NEXT] = arena[place + N_NEXT]
    arena[node_at(arena, at, arena[place + N_NEXT]) + N_PREV] = arena[place + N_PREV]
    arena[place + N_NEXT] = arena[at + R_SPARE_NODE]
    arena[at + R_SPARE_NODE] = node


@kernel
def is_anybodys(arena, at, node):
    """Is this a run that nobody will look for?"""
    return node != ENDS and arena[node_at(arena, at, node) + N_OWNER] == OF_NOBODY


@kernel
def merge(arena, at, node, following):
    """Two neighbours become one where nobody will look for either; returns the first of what is left."""
    if not (is_anybodys(arena, at, node) and is_anybodys(arena, at, following)):
        return following
    arena[node_at(arena, at, node) + N_COUNT] += arena[node_at(arena, at, following) + N_COUNT]
    drop_run(arena, at, following)
    return node


@kernel
def take(arena, state, at, blocks):
    """Use free blocks; what was cached in them is gone."""
    arena[at + R_FREE] -= blocks
    if arena[at + R_CACHING] == 0:
        return
    while blocks > 0:
        node = arena[node_at(arena, at, ENDS) + N_NEXT]
        place = node_at(arena, at, node)
        part = min(blocks, arena[place + N_COUNT])
        arena[place + N_COUNT] -= part
        blocks -= part
        if arena[place + N_COUNT] == 0:
            if arena[place + N_OWNER] != OF_NOBODY:
                state[arena[place + N_OWNER], S_RUN] = NO_RUN
            drop_run(arena, at, node)


@kernel
def give(arena, at, blocks, before):
    """Free blocks that nobody will look for, at the head (before: the head's node) or the tail (ENDS) of the list."""
    if blocks == 0:
        return
    beside = arena[node_at(arena, at, ENDS) + N_PREV] if before == ENDS else before
    if is_anybodys(arena, at, beside):
        arena[node_at(arena, at, beside) + N_COUNT] += blocks
    else:
        add_run(arena, at, OF_NOBODY, blocks, before)


@kernel
def release(arena, state, at, held, full, owner):
    """Give back `held` blocks, the leading `full` of which hold what they are for. owner : the row that comes back, or
    OF_NOBODY.
    """
    arena[at + R_FREE] += held
    if arena[at + R_CACHING] == 0:
        return
    head = arena[node_at(arena, at, ENDS) + N_NEXT] if arena[at + R_UNHASHED_FIRST] != 0 else ENDS
    give(arena, at, held - full, head)
    if owner == OF_NOBODY:
        give(arena, at, full, ENDS)
    elif full > 0:
        state[owner, S_RUN] = add_run(arena, at, owner, full, ENDS)


@kernel
def hit_blocks(arena, state, at, row):
    """Leading blocks of a request that it finds again; its last known token is computed anyway."""
    if state[row, S_RUN] == NO_RUN:
        return 0
    cached = arena[node_at(arena, at, state[row, S_RUN]) + N_COUNT]
    return min(cached, (state[row, S_KNOWN] - 1) // arena[at + R_BLOCK_SIZE])


@kernel
def come_back(arena, state, at, row, hits):
    """A request takes the blocks that it found, and will not look for the others any more."""
    node = state[row, S_RUN]
    if node == NO_RUN:
        return
    state[row, S_RUN] = NO_RUN
    arena[at + R_FREE] -= hits
    place = node_at(arena, at, node)
    arena[place + N_COUNT] -= hits
    arena[place + N_OWNER] = OF_NOBODY
    previous, following = arena[place + N_PREV], arena[place + N_NEXT]
    if arena[place + N_COUNT] == 0:
        drop_run(arena, at, node)
        merge(arena, at, previous, following)
    else:
        merge(arena, at, merge(arena, at, previous, node), following)
