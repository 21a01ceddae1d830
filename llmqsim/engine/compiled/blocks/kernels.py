"""Blocks of a replica's KV pool: counted, and, with prefix caching, in the order in which free ones are used again.

What kv/prefix.py knows block by block is kept in nodes, and only as far as it can matter:

- a *copy* (N_KEY >= 0) is one block whose content others may look for, held by N_COUNT requests or free;
- a *run* (N_KEY < 0) is N_COUNT free blocks: the leading private blocks of a preempted request (OWNED - slot), which it
  alone may look for, or blocks that nobody will look for (HASHED, UNHASHED; the host keeps what was in the former).

The free list, used from its head, links free copies and runs. A request's blocks are freed tail first, so that what is
left of its run is always the leading part. Private blocks that are held are only counted. Copies of one key are a ring in
the order in which they were computed; prefix/kernels.py finds them. What the host keeps is a list of the same kind, used
from its head, too: keys (R_HOST_KEYS has the node of each) and runs. Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.jit import kernel


@kernel
def node_at(arena, base, node):
    """Where a node lies."""
    return arena[base + R_NODES] + node * NODE


@kernel
def slot_of(arena, base, slot):
    """Where a slot lies."""
    return arena[base + R_SLOTS] + slot * SLOT


# Nodes.


@kernel
def new_node(arena, base, key, count):
    """A node that is in no list yet."""
    node = arena[base + R_SPARE_NODE]
    if node != NO_NODE:
        arena[base + R_SPARE_NODE] = arena[node_at(arena, base, node) + N_NEXT]
    else:
        arena[base + R_NODES_USED] += 1
        node = arena[base + R_NODES_USED]
    at = node_at(arena, base, node)
    arena[at + N_KEY] = key
    arena[at + N_COUNT] = count
    return node


@kernel
def drop_node(arena, base, node):
    """A node that is in no list may be used for something else."""
    arena[node_at(arena, base, node) + N_NEXT] = arena[base + R_SPARE_NODE]
    arena[base + R_SPARE_NODE] = node


@kernel
def link(arena, base, node, before):
    """Put a node into the free list, before another one (ENDS: at the tail)."""
    at, next_at = node_at(arena, base, node), node_at(arena, base, before)
    previous = arena[next_at + N_PREV]
    arena[at + N_PREV] = previous
    arena[at + N_NEXT] = before
    arena[next_at + N_PREV] = node
    arena[node_at(arena, base, previous) + N_NEXT] = node


@kernel
def unlink(arena, base, node):
    """Take a node out of its list; runs of one kind that nobody looks for become one where they meet."""
    at = node_at(arena, base, node)
    previous, following = arena[at + N_PREV], arena[at + N_NEXT]
    previous_at, following_at = node_at(arena, base, previous), node_at(arena, base, following)
    arena[previous_at + N_NEXT] = following
    arena[following_at + N_PREV] = previous
    kind = arena[previous_at + N_KEY]
    if (kind == HASHED or kind == UNHASHED) and arena[following_at + N_KEY] == kind:
        arena[previous_at + N_COUNT] += arena[following_at + N_COUNT]
        unlink_run(arena, base, following)


@kernel
def unlink_run(arena, base, node):
    """Take a run whose blocks have gone elsewhere out of its list."""
    at = node_at(arena, base, node)
    arena[node_at(arena, base, arena[at + N_PREV]) + N_NEXT] = arena[at + N_NEXT]
    arena[node_at(arena, base, arena[at + N_NEXT]) + N_PREV] = arena[at + N_PREV]
    drop_node(arena, base, node)


# Rings of the copies of a key.


@kernel
def add_copy(arena, base, key, since):
    """A block with this content is computed by one request, who holds it since admission `since`; returns its node."""
    node = new_node(arena, base, key, 1)
    at, first_at = node_at(arena, base, node), arena[base + R_KEYS] + key
    arena[at + N_REPEATS] = 0
    arena[at + N_SINCE] = since
    first = arena[first_at]
    if first == NO_NODE:
        arena[first_at] = arena[at + N_LATER] = arena[at + N_EARLIER] = node
        return node
    last = arena[node_at(arena, base, first) + N_EARLIER]
    arena[node_at(arena, base, last) + N_LATER] = node
    arena[node_at(arena, base, first) + N_EARLIER] = node
    arena[at + N_EARLIER] = last
    arena[at + N_LATER] = first
    return node


@kernel
def drop_key(arena, base, node):
    """Nobody will find a copy any more."""
    at = node_at(arena, base, node)
    first_at = arena[base + R_KEYS] + arena[at + N_KEY]
    earlier, later = arena[at + N_EARLIER], arena[at + N_LATER]
    if later == node:
        arena[first_at] = NO_NODE
    else:
        arena[node_at(arena, base, earlier) + N_LATER] = later
        arena[node_at(arena, base, later) + N_EARLIER] = earlier
        if arena[first_at] == node:
            arena[first_at] = later
    arena[at + N_LATER] = NO_NODE


@kernel
def drop_copy(arena, base, node):
    """The content of a block that is in no free list is gone."""
    drop_key(arena, base, node)
    drop_node(arena, base, node)


# What the host keeps.


@kernel
def keep_key(arena, base, key):
    """The last copy of a key lost its place on the GPU: it is the newest that the host has."""
    node_of = arena[base + R_HOST_KEYS] + key
    node = arena[node_of]
    if node == NO_NODE:
        node = new_node(arena, base, key, 1)
        arena[node_of] = node
        arena[base + R_HOST_CACHED] += 1
    else:
        unlink(arena, base, node)
    link(arena, base, node, HOST_ENDS)
    fit_host(arena, base)


@kernel
def keep_run(arena, base, kind, blocks):
    """Private blocks lost their place on the GPU: they are the newest that the host has."""
    last = arena[node_at(arena, base, HOST_ENDS) + N_PREV]
    if arena[node_at(arena, base, last) + N_KEY] == kind:
        arena[node_at(arena, base, last) + N_COUNT] += blocks
    else:
        node = new_node(arena, base, kind, blocks)
        link(arena, base, node, HOST_ENDS)
        if kind <= OWNED:
            arena[slot_of(arena, base, OWNED - kind) + S_HOST_RUN] = node
    arena[base + R_HOST_CACHED] += blocks
    fit_host(arena, base)


@kernel
def fit_host(arena, base):
    """The host keeps no more than it has room for: the oldest goes."""
    while arena[base + R_HOST_CACHED] > arena[G_HOST_BLOCKS]:
        node = arena[node_at(arena, base, HOST_ENDS) + N_NEXT]
        at = node_at(arena, base, node)
        part = min(arena[at + N_COUNT], arena[base + R_HOST_CACHED] - arena[G_HOST_BLOCKS])
        arena[at + N_COUNT] -= part
        arena[base + R_HOST_CACHED] -= part
        if arena[at + N_COUNT] == 0:
            if arena[at + N_KEY] >= 0:
                arena[arena[base + R_HOST_KEYS] + arena[at + N_KEY]] = NO_NODE
            elif arena[at + N_KEY] <= OWNED:
                arena[slot_of(arena, base, OWNED - arena[at + N_KEY]) + S_HOST_RUN] = NO_NODE
            unlink_run(arena, base, node)


@kernel
def forsake_key(arena, base, key):
    """A key is loaded into a block of the GPU: the host has it no more (if it still had it)."""
    node_of = arena[base + R_HOST_KEYS] + key
    node = arena[node_of]
    if node != NO_NODE:
        arena[node_of] = NO_NODE
        arena[base + R_HOST_CACHED] -= 1
        unlink(arena, base, node)
        drop_node(arena, base, node)


# Taking and giving back.


@kernel
def take(arena, base, blocks):
    """Use free blocks; what was cached in them is gone, or goes to the host."""
    arena[base + R_FREE_BLOCKS] -= blocks
    if arena[G_CACHING] == 0:
        return
    while blocks > 0:
        node = arena[node_at(arena, base, ENDS) + N_NEXT]
        at = node_at(arena, base, node)
        key = arena[at + N_KEY]
        if key >= 0:
            unlink(arena, base, node)
            drop_copy(arena, base, node)
            blocks -= 1
            if arena[G_HOST_BLOCKS] > 0 and arena[arena[base + R_KEYS] + key] == NO_NODE:
                keep_key(arena, base, key)
            continue
        part = min(blocks, arena[at + N_COUNT])
        arena[at + N_COUNT] -= part
        blocks -= part
        if arena[at + N_COUNT] == 0:
            if key <= OWNED:
                arena[slot_of(arena, base, OWNED - key) + S_RUN] = NO_NODE
            unlink_run(arena, base, node)
        if arena[G_HOST_BLOCKS] > 0 and key != UNHASHED:
            keep_run(arena, base, key, part)


@kernel
def give(arena, base, blocks, kind, before):
    """Free blocks that nobody will look for, at the head (before: the head's node) or the tail (ENDS) of the list."""
    arena[base + R_FREE_BLOCKS] += blocks
    if arena[G_CACHING] == 0 or blocks == 0:
        return
    if arena[G_HOST_BLOCKS] == 0:
        kind = UNHASHED
    beside = arena[node_at(arena, base, ENDS) + N_PREV] if before == ENDS else before
    if arena[node_at(arena, base, beside) + N_KEY] == kind:
        arena[node_at(arena, base, beside) + N_COUNT] += blocks
    else:
        link(arena, base, new_node(arena, base, kind, blocks), before)


@kernel
def give_unhashed(arena, base, blocks):
    """Free blocks that hold nothing: used after all that are free now, or (unhashed_blocks_first) before them."""
    head = arena[node_at(arena, base, ENDS) + N_NEXT] if arena[G_UNHASHED_FIRST] != 0 else ENDS
    give(arena, base, blocks, UNHASHED, head)


@kernel
def release(arena, base, slot, held, full, comes_back):
    """A request gives `held` blocks back, tail first, the leading `full` of them with what they hold.

    comes_back: it may look for its own again.
    """
    if arena[G_CACHING] == 0:
        arena[base + R_FREE_BLOCKS] += held
        return
    at = slot_of(arena, base, slot)
    shared = arena[at + S_SHARED]
    give_unhashed(arena, base, held - full)
    if comes_back and full > shared:
        arena[base + R_FREE_BLOCKS] += full - shared
        arena[at + S_RUN] = new_node(arena, base, OWNED - slot, full - shared)
        link(arena, base, arena[at + S_RUN], ENDS)
    else:
        give(arena, base, full - shared, HASHED, ENDS)
    for place in range(arena[at + S_PREFIX] + shared - 1, arena[at + S_PREFIX] - 1, -1):
        node = let_go(arena, base, place)
        if arena[node_at(arena, base, node) + N_COUNT] > 0:
            continue
        if arena[node_at(arena, base, node) + N_LATER] == NO_NODE:
            drop_node(arena, base, node)
            give_unhashed(arena, base, 1)
        else:
            link(arena, base, node, ENDS)
            arena[base + R_FREE_BLOCKS] += 1
    arena[at + S_SHARED] = arena[at + S_HELD] = 0


@kernel
def let_go(arena, base, place):
    """A request holds a copy no more; returns the node that stood at `place` of the arena, where its key stands now."""
    node = arena[place]
    at = node_at(arena, base, node)
    arena[place] = arena[at + N_KEY]
    arena[at + N_COUNT] -= 1
    if 0 < arena[at + N_REPEATS] >= arena[at + N_COUNT]:
        arena[at + N_REPEATS] -= 1
        arena[base + R_REPEATED] -= 1
    return node


@kernel
def disown(arena, base, slot):
    """A request has ended while it waited: nobody will look for its own blocks."""
    at = slot_of(arena, base, slot)
    if arena[at + S_RUN] != NO_NODE:
        disown_run(arena, base, arena[at + S_RUN], UNHASHED if arena[G_HOST_BLOCKS] == 0 else HASHED)
        arena[at + S_RUN] = NO_NODE
    if arena[at + S_HOST_RUN] != NO_NODE:
        disown_run(arena, base, arena[at + S_HOST_RUN], HASHED)
        arena[at + S_HOST_RUN] = NO_NODE


@kernel
def disown_run(arena, base, node, kind):
    """A run becomes one that nobody looks for, together with its neighbours of that kind."""
    at = node_at(arena, base, node)
    previous, following = arena[at + N_PREV], arena[at + N_NEXT]
    arena[at + N_KEY] = kind
    if arena[node_at(arena, base, previous) + N_KEY] == kind:
        arena[node_at(arena, base, previous) + N_COUNT] += arena[at + N_COUNT]
        unlink_run(arena, base, node)
        node = previous
    if arena[node_at(arena, base, following) + N_KEY] == kind:
        arena[node_at(arena, base, node) + N_COUNT] += arena[node_at(arena, base, following) + N_COUNT]
        unlink_run(arena, base, following)
