"""Blocks are taken and given back. Arguments as in step/."""

from __future__ import annotations

from llmqsim.engine.compiled.blocks.host import keep_key, keep_run
from llmqsim.engine.compiled.blocks.nodes import drop_copy, drop_node, link, new_node, unlink, unlink_run
from llmqsim.engine.compiled.world.blocks import ENDS, HASHED, NO_NODE, OWNED, UNHASHED, node_at
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.jit import kernel


@kernel
def take(run, arena, replica, blocks):
    """Use free blocks; what was cached in them is gone, or goes to the host."""
    replica.free_blocks -= blocks
    if run.caching == 0:
        return
    while blocks > 0:
        node = node_at(arena, replica.nodes, ENDS).next
        its = node_at(arena, replica.nodes, node)
        key = its.key
        if key >= 0:
            unlink(arena, replica, node)
            drop_copy(arena, replica, node)
            blocks -= 1
            if run.host_blocks > 0 and arena[replica.keys + key] == NO_NODE:
                keep_key(run, arena, replica, key)
            continue
        part = min(blocks, its.count)
        its.count -= part
        blocks -= part
        if its.count == 0:
            if key <= OWNED:
                request_at(arena, replica.slots, OWNED - key).run = NO_NODE
            unlink_run(arena, replica, node)
        if run.host_blocks > 0 and key != UNHASHED:
            keep_run(run, arena, replica, key, part)


@kernel
def give(run, arena, replica, blocks, kind, before):
    """Free blocks that nobody will look for, at the head (before: the head's node) or the tail (ENDS) of the list."""
    replica.free_blocks += blocks
    if run.caching == 0 or blocks == 0:
        return
    if run.host_blocks == 0:
        kind = UNHASHED
    beside = node_at(arena, replica.nodes, ENDS).previous if before == ENDS else before
    if node_at(arena, replica.nodes, beside).key == kind:
        node_at(arena, replica.nodes, beside).count += blocks
    else:
        link(arena, replica, new_node(arena, replica, kind, blocks), before)


@kernel
def give_unhashed(run, arena, replica, blocks):
    """Free blocks that hold nothing: used after all that are free now, or (unhashed_blocks_first) before them."""
    head = node_at(arena, replica.nodes, ENDS).next if run.unhashed_first != 0 else ENDS
    give(run, arena, replica, blocks, UNHASHED, head)


@kernel
def release(run, arena, replica, slot, held, full, comes_back):
    """A request gives `held` blocks back, tail first, the leading `full` of them with what they hold.

    comes_back: it may look for its own again.
    """
    if run.caching == 0:
        replica.free_blocks += held
        return
    request = request_at(arena, replica.slots, slot)
    shared = request.shared
    give_unhashed(run, arena, replica, held - full)
    if comes_back and full > shared:
        replica.free_blocks += full - shared
        request.run = new_node(arena, replica, OWNED - slot, full - shared)
        link(arena, replica, request.run, ENDS)
    else:
        give(run, arena, replica, full - shared, HASHED, ENDS)
    for place in range(request.keys + shared - 1, request.keys - 1, -1):
        node = let_go(arena, replica, place)
        if node_at(arena, replica.nodes, node).count > 0:
            continue
        if node_at(arena, replica.nodes, node).later == NO_NODE:
            drop_node(arena, replica, node)
            give_unhashed(run, arena, replica, 1)
        else:
            link(arena, replica, node, ENDS)
            replica.free_blocks += 1
    request.shared = request.held = 0


@kernel
def let_go(arena, replica, place):
    """A request holds a copy no more; returns the node that stood at `place` of the arena, where its key stands now."""
    node = arena[place]
    its = node_at(arena, replica.nodes, node)
    arena[place] = its.key
    its.count -= 1
    if 0 < its.repeats >= its.count:
        its.repeats -= 1
        replica.repeated -= 1
    return node


@kernel
def disown(run, arena, replica, slot):
    """A request has ended while it waited: nobody will look for its own blocks."""
    request = request_at(arena, replica.slots, slot)
    if request.run != NO_NODE:
        disown_run(arena, replica, request.run, UNHASHED if run.host_blocks == 0 else HASHED)
        request.run = NO_NODE
    if request.host_run != NO_NODE:
        disown_run(arena, replica, request.host_run, HASHED)
        request.host_run = NO_NODE


@kernel
def disown_run(arena, replica, node, kind):
    """A run becomes one that nobody looks for, together with its neighbours of that kind."""
    its = node_at(arena, replica.nodes, node)
    previous, following = its.previous, its.next
    its.key = kind
    if node_at(arena, replica.nodes, previous).key == kind:
        node_at(arena, replica.nodes, previous).count += its.count
        unlink_run(arena, replica, node)
        node = previous
    if node_at(arena, replica.nodes, following).key == kind:
        node_at(arena, replica.nodes, node).count += node_at(arena, replica.nodes, following).count
        unlink_run(arena, replica, following)
