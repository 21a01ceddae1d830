"""What the host keeps of blocks that lost their place on the GPU: a list like that of free blocks, used from its head, too, of
keys (`replica.host_keys` has the node of each) and runs. Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine.compiled.blocks.nodes import drop_node, link, new_node, unlink, unlink_run
from llmqsim.engine.compiled.world.blocks import HOST_ENDS, NO_NODE, OWNED, node_at
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.jit import kernel


@kernel
def keep_key(run, arena, replica, key):
    """The last copy of a key lost its place on the GPU: it is the newest that the host has."""
    node_of = replica.host_keys + key
    node = arena[node_of]
    if node == NO_NODE:
        node = new_node(arena, replica, key, 1)
        arena[node_of] = node
        replica.host_cached += 1
    else:
        unlink(arena, replica, node)
    link(arena, replica, node, HOST_ENDS)
    fit_host(run, arena, replica)


@kernel
def keep_run(run, arena, replica, kind, blocks):
    """Private blocks lost their place on the GPU: they are the newest that the host has."""
    last = node_at(arena, replica.nodes, HOST_ENDS).previous
    if node_at(arena, replica.nodes, last).key == kind:
        node_at(arena, replica.nodes, last).count += blocks
    else:
        node = new_node(arena, replica, kind, blocks)
        link(arena, replica, node, HOST_ENDS)
        if kind <= OWNED:
            request_at(arena, replica.slots, OWNED - kind).host_run = node
    replica.host_cached += blocks
    fit_host(run, arena, replica)


@kernel
def fit_host(run, arena, replica):
    """The host keeps no more than it has room for: the oldest goes."""
    while replica.host_cached > run.host_blocks:
        node = node_at(arena, replica.nodes, HOST_ENDS).next
        its = node_at(arena, replica.nodes, node)
        part = min(its.count, replica.host_cached - run.host_blocks)
        its.count -= part
        replica.host_cached -= part
        if its.count == 0:
            if its.key >= 0:
                arena[replica.host_keys + its.key] = NO_NODE
            elif its.key <= OWNED:
                request_at(arena, replica.slots, OWNED - its.key).host_run = NO_NODE
            unlink_run(arena, replica, node)


@kernel
def forsake_key(arena, replica, key):
    """A key is loaded into a block of the GPU: the host has it no more (if it still had it)."""
    node_of = replica.host_keys + key
    node = arena[node_of]
    if node != NO_NODE:
        arena[node_of] = NO_NODE
        replica.host_cached -= 1
        unlink(arena, replica, node)
        drop_node(arena, replica, node)
