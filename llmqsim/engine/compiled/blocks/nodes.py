"""Nodes: lists of free blocks, and rings of the copies of a key. Arguments as in step/."""

from __future__ import annotations

from llmqsim.engine.compiled.world.blocks import HASHED, NO_NODE, UNHASHED, node_at
from llmqsim.jit import kernel

# Nodes.


@kernel
def new_node(arena, replica, key, count):
    """A node that is in no list yet."""
    node = replica.spare_node
    if node != NO_NODE:
        replica.spare_node = node_at(arena, replica.nodes, node).next
    else:
        replica.nodes_used += 1
        node = replica.nodes_used
    its = node_at(arena, replica.nodes, node)
    its.key = key
    its.count = count
    return node


@kernel
def drop_node(arena, replica, node):
    """A node that is in no list may be used for something else."""
    node_at(arena, replica.nodes, node).next = replica.spare_node
    replica.spare_node = node


@kernel
def link(arena, replica, node, before):
    """Put a node into the free list, before another one (ENDS: at the tail)."""
    its, following = node_at(arena, replica.nodes, node), node_at(arena, replica.nodes, before)
    previous = following.previous
    its.previous = previous
    its.next = before
    following.previous = node
    node_at(arena, replica.nodes, previous).next = node


@kernel
def unlink(arena, replica, node):
    """Take a node out of its list; runs of one kind that nobody looks for become one where they meet."""
    its = node_at(arena, replica.nodes, node)
    previous, following = its.previous, its.next
    one_before, one_after = node_at(arena, replica.nodes, previous), node_at(arena, replica.nodes, following)
    one_before.next = following
    one_after.previous = previous
    kind = one_before.key
    if (kind in (HASHED, UNHASHED)) and one_after.key == kind:
        one_before.count += one_after.count
        unlink_run(arena, replica, following)


@kernel
def unlink_run(arena, replica, node):
    """Take a run whose blocks have gone elsewhere out of its list."""
    its = node_at(arena, replica.nodes, node)
    node_at(arena, replica.nodes, its.previous).next = its.next
    node_at(arena, replica.nodes, its.next).previous = its.previous
    drop_node(arena, replica, node)


# Rings of the copies of a key.


@kernel
def add_copy(arena, replica, key, since):
    """A block with this content is computed by one request, who holds it since admission `since`; returns its node."""
    node = new_node(arena, replica, key, 1)
    its, first_at = node_at(arena, replica.nodes, node), replica.keys + key
    its.repeats = 0
    its.since = since
    first = arena[first_at]
    if first == NO_NODE:
        arena[first_at] = its.later = its.earlier = node
        return node
    last = node_at(arena, replica.nodes, first).earlier
    node_at(arena, replica.nodes, last).later = node
    node_at(arena, replica.nodes, first).earlier = node
    its.earlier = last
    its.later = first
    return node


@kernel
def drop_key(arena, replica, node):
    """Nobody will find a copy any more."""
    its = node_at(arena, replica.nodes, node)
    first_at = replica.keys + its.key
    earlier, later = its.earlier, its.later
    if later == node:
        arena[first_at] = NO_NODE
    else:
        node_at(arena, replica.nodes, earlier).later = later
        node_at(arena, replica.nodes, later).earlier = earlier
        if arena[first_at] == node:
            arena[first_at] = later
    its.later = NO_NODE


@kernel
def drop_copy(arena, replica, node):
    """The content of a block that is in no free list is gone."""
    drop_key(arena, replica, node)
    drop_node(arena, replica, node)
