"""Who finds what cached: the keys of prompts that share prefixes, and the copies that requests hold of them.

Keys are numbered 0, 1, ... once for a run (numbering.py), so that a look-up reads an array: `replica.keys` leads to the first
copy of each, or NO_NODE. A row's keys lie in the arena in order of position; while a request holds copies of its leading
blocks (`shared` of them), their nodes stand there instead, each of which knows its key. Behind the keys come private
blocks, of which only a preempted request may still have some. Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.host import forsake_key
from llmqsim.engine.compiled.blocks.nodes import add_copy, drop_key, drop_node, link, unlink
from llmqsim.engine.compiled.blocks.pool import let_go, take
from llmqsim.engine.compiled.world.blocks import ENDS, NO_NODE, node_at
from llmqsim.engine.compiled.world.replica import replica_at
from llmqsim.engine.compiled.world.request import request_at
from llmqsim.engine.compiled.world.run import run_at
from llmqsim.jit import kernel


@kernel
def find_keys(run, arena, request, row):
    """Note in a slot where the keys of its row lie, and how many there are."""
    request.shared = request.held = 0
    request.run = request.host_run = NO_NODE
    if run.prefix != 0:
        offset = arena[run.prefix + row]
        request.keys = run.prefix_ids + offset
        request.keyed = arena[run.prefix + row + 1] - offset


@kernel
def hits(run, arena, replica, slot, row, known):
    """What a waiting request (slot -1: a new one) would find: (leading blocks cached, of these free ones)."""
    found = free = 0
    if run.caching == 0:
        return found, free
    if run.prefix != 0:
        offsets = run.prefix + row
        first, keys = run.prefix_ids + arena[offsets], arena[offsets + 1] - arena[offsets]
        for place in range(first, first + min(keys, (known - 1) // run.block_size)):
            node = arena[replica.keys + arena[place]]
            if node != NO_NODE:
                free += node_at(arena, replica.nodes, node).count == 0
            elif run.host_blocks > 0 and arena[replica.host_keys + arena[place]] != NO_NODE:
                free += 1
            else:
                return found, free
            found += 1
        if found < keys:
            return found, free
    if slot >= 0:
        request = request_at(arena, replica.slots, slot)
        for node in (request.run, request.host_run):
            if node != NO_NODE:
                found += node_at(arena, replica.nodes, node).count
                free += node_at(arena, replica.nodes, node).count
    return found, free


@kernel
def take_hits(run, arena, replica, slot, found):
    """A request holds the `found` leading blocks that `hits` found for it; returns how many are loaded from the host."""
    request, now, missing = request_at(arena, replica.slots, slot), replica.admissions, 0
    shared, own = min(found, request.keyed), 0
    for place in range(request.keys, request.keys + shared):
        node = arena[replica.keys + arena[place]]
        if node == NO_NODE:
            arena[place] = -1 - arena[place]
            missing += 1
            continue
        its = node_at(arena, replica.nodes, node)
        if its.count == 0:
            unlink(arena, replica, node)
            replica.free_blocks -= 1
        elif now - its.since <= run.near_admissions:
            its.repeats += 1
            replica.repeated += 1
        its.count += 1
        its.since = now
        arena[place] = node
    if request.run != NO_NODE and found > shared:
        node = request.run
        own = node_at(arena, replica.nodes, node).count
        request.run = NO_NODE
        replica.free_blocks -= own
        unlink(arena, replica, node)
        drop_node(arena, replica, node)
    request.shared = request.held = shared
    if missing > 0:
        load_shared(run, arena, replica, request, shared)
    if found > shared + own:
        load_own(run, arena, replica, request, found - shared - own)
    return missing + found - shared - own


@kernel
def load_shared(run, arena, replica, request, shared):
    """Load the keys among the first `shared` that are not on the GPU, marked as -1 - key, each into a free block."""
    for place in range(request.keys, request.keys + shared):
        if arena[place] < 0:
            key = -1 - arena[place]
            take(run, arena, replica, 1)
            forsake_key(arena, replica, key)
            arena[place] = add_copy(arena, replica, key, replica.admissions)


@kernel
def load_own(run, arena, replica, request, blocks):
    """Load a request's own blocks, each into a free block. What loses its place there may push the last of them out."""
    for _ in range(blocks):
        take(run, arena, replica, 1)
        node = request.host_run
        if node != NO_NODE:
            replica.host_cached -= 1
            node_at(arena, replica.nodes, node).count -= 1
            if node_at(arena, replica.nodes, node).count == 0:
                request.host_run = NO_NODE
                unlink(arena, replica, node)
                drop_node(arena, replica, node)


@kernel
def share(run, arena, replica, request):
    """A step is formed that fills blocks of the request in slot `at`: others may hit them from now.

    All its blocks but request.held were taken just now; of those, only the last, which was not full, can be full now.
    """
    if request.shared == request.keyed:
        return
    block_size, now = run.block_size, replica.admissions
    full = min(request.keyed, request.computed_tokens // block_size)
    for position in range(request.shared, full):
        place = request.keys + position
        since = request.held_since if position < request.held else now
        arena[place] = add_copy(arena, replica, arena[place], since)
    request.shared = max(full, request.shared)
    held = max(request.hold, rules.blocks_for(request.computed_tokens, block_size))
    if held > request.held:
        request.held = held
        request.held_since = now


@kernel
def forget(run, arena, replica, request, tokens):
    """Nobody will find what a request holds beyond `tokens` any more. Returns how many of those blocks others hold, too."""
    kept, others = tokens // run.block_size, 0
    for place in range(request.keys + kept, request.keys + request.shared):
        node = arena[place]
        if node_at(arena, replica.nodes, node).later != NO_NODE:
            drop_key(arena, replica, node)
        let_go(arena, replica, place)
        if node_at(arena, replica.nodes, node).count > 0:
            others += 1
        else:
            drop_node(arena, replica, node)
    request.shared = min(request.shared, kept)
    return others


@kernel
def warm(run, arena, replica):
    """Fill the cache as if all prompts had been served one after the other, as far as it goes."""
    room = replica.usable_blocks
    for row in range(run.rows):
        first = run.prefix_ids + arena[run.prefix + row]
        end = run.prefix_ids + arena[run.prefix + row + 1]
        new = 0
        for place in range(first, end):
            if new < room and arena[replica.keys + arena[place]] == NO_NODE:
                new += 1
                arena[place] = -1 - arena[place]
        take(run, arena, replica, new)
        for place in range(first, end):
            if arena[place] < 0:
                arena[place] = add_copy(arena, replica, -1 - arena[place], 0)
                room -= 1
            else:
                arena[place] = -1 - arena[place]
        for place in range(end - 1, first - 1, -1):
            if arena[place] < 0:
                arena[place] = -1 - arena[place]
                continue
            node = arena[place]
            its = node_at(arena, replica.nodes, node)
            arena[place] = its.key
            its.count = 0
            link(arena, replica, node, ENDS)
            replica.free_blocks += 1
        if room == 0:
            return


@kernel
def warm_all(arena):
    """Fill the caches of all replicas."""
    run = run_at(arena, 0)
    for index in range(run.replicas):
        warm(run, arena, replica_at(arena, run.first_replica + index * run.stride))
