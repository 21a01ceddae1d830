"""Who finds what cached: the keys of prompts that share prefixes, and the copies that requests hold of them.

Keys are numbered 0, 1, ... once for a run (`__init__.py`), so that a look-up reads an array: R_KEYS has the first copy of
each key in a replica, or NO_NODE. A row's keys lie in the arena in order of position; while a request holds copies of
its leading blocks (S_SHARED of them), their nodes stand there instead, each of which knows its key. Behind the keys come
private blocks, of which only a preempted request may still have some. Arguments as in step/.
"""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.blocks.kernels import (
    add_copy,
    drop_key,
    drop_node,
    forsake_key,
    let_go,
    link,
    node_at,
    slot_of,
    take,
    unlink,
)
from llmqsim.engine.compiled.layout import *  # noqa: F403  (names of words, nothing else)
from llmqsim.jit import kernel

POSITION_BITS = 32
"""`number` takes the lower half of a hash for a position: a guess that makes the numbers dense, never wrong"""


# A replica.


@kernel
def find_keys(arena, at, row):
    """Note in a slot where the keys of its row lie, and how many there are."""
    arena[at + S_SHARED] = arena[at + S_HELD] = 0
    arena[at + S_RUN] = arena[at + S_HOST_RUN] = NO_NODE
    if arena[G_PREFIX] != 0:
        offset = arena[arena[G_PREFIX] + row]
        arena[at + S_PREFIX] = arena[G_PREFIX_IDS] + offset
        arena[at + S_PREFIXED] = arena[arena[G_PREFIX] + row + 1] - offset


@kernel
def hits(arena, base, slot, row, known):
    """What a waiting request (slot -1: a new one) would find: (leading blocks cached, of these free ones)."""
    found = free = 0
    if arena[G_CACHING] == 0:
        return found, free
    if arena[G_PREFIX] != 0:
        offsets = arena[G_PREFIX] + row
        first, keys = arena[G_PREFIX_IDS] + arena[offsets], arena[offsets + 1] - arena[offsets]
        for place in range(first, first + min(keys, (known - 1) // arena[G_BLOCK_SIZE])):
            node = arena[arena[base + R_KEYS] + arena[place]]
            if node != NO_NODE:
                free += arena[node_at(arena, base, node) + N_COUNT] == 0
            elif arena[G_HOST_BLOCKS] > 0 and arena[arena[base + R_HOST_KEYS] + arena[place]] != NO_NODE:
                free += 1
            else:
                return found, free
            found += 1
        if found < keys:
            return found, free
    if slot >= 0:
        for word in (S_RUN, S_HOST_RUN):
            node = arena[slot_of(arena, base, slot) + word]
            if node != NO_NODE:
                found += arena[node_at(arena, base, node) + N_COUNT]
                free += arena[node_at(arena, base, node) + N_COUNT]
    return found, free


@kernel
def take_hits(arena, base, slot, found):
    """A request holds the `found` leading blocks that `hits` found for it; returns how many are loaded from the host."""
    at, now, missing = slot_of(arena, base, slot), arena[base + R_ADMISSIONS], 0
    shared, own = min(found, arena[at + S_PREFIXED]), 0
    for place in range(arena[at + S_PREFIX], arena[at + S_PREFIX] + shared):
        node = arena[arena[base + R_KEYS] + arena[place]]
        if node == NO_NODE:
            arena[place] = -1 - arena[place]
            missing += 1
            continue
        node_place = node_at(arena, base, node)
        if arena[node_place + N_COUNT] == 0:
            unlink(arena, base, node)
            arena[base + R_FREE_BLOCKS] -= 1
        elif now - arena[node_place + N_SINCE] <= arena[G_NEAR_ADMISSIONS]:
            arena[node_place + N_REPEATS] += 1
            arena[base + R_REPEATED] += 1
        arena[node_place + N_COUNT] += 1
        arena[node_place + N_SINCE] = now
        arena[place] = node
    if arena[at + S_RUN] != NO_NODE and found > shared:
        node = arena[at + S_RUN]
        own = arena[node_at(arena, base, node) + N_COUNT]
        arena[at + S_RUN] = NO_NODE
        arena[base + R_FREE_BLOCKS] -= own
        unlink(arena, base, node)
        drop_node(arena, base, node)
    arena[at + S_SHARED] = arena[at + S_HELD] = shared
    if missing > 0:
        load_shared(arena, base, at, shared)
    if found > shared + own:
        load_own(arena, base, at, found - shared - own)
    return missing + found - shared - own


@kernel
def load_shared(arena, base, at, shared):
    """Load the keys among the first `shared` that are not on the GPU, marked as -1 - key, each into a free block."""
    for place in range(arena[at + S_PREFIX], arena[at + S_PREFIX] + shared):
        if arena[place] < 0:
            key = -1 - arena[place]
            take(arena, base, 1)
            forsake_key(arena, base, key)
            arena[place] = add_copy(arena, base, key, arena[base + R_ADMISSIONS])


@kernel
def load_own(arena, base, at, blocks):
    """Load a request's own blocks, each into a free block. What loses its place there may push the last of them out."""
    for _ in range(blocks):
        take(arena, base, 1)
        node = arena[at + S_HOST_RUN]
        if node != NO_NODE:
            arena[base + R_HOST_CACHED] -= 1
            arena[node_at(arena, base, node) + N_COUNT] -= 1
            if arena[node_at(arena, base, node) + N_COUNT] == 0:
                arena[at + S_HOST_RUN] = NO_NODE
                unlink(arena, base, node)
                drop_node(arena, base, node)


@kernel
def share(arena, base, at):
    """A step is formed that fills blocks of the request in slot `at`: others may hit them from now.

    All its blocks but S_HELD were taken just now; of those, only the last, which was not full, can be full now.
    """
    if arena[at + S_SHARED] == arena[at + S_PREFIXED]:
        return
    block_size, now = arena[G_BLOCK_SIZE], arena[base + R_ADMISSIONS]
    full = min(arena[at + S_PREFIXED], arena[at + S_COMPUTED] // block_size)
    for position in range(arena[at + S_SHARED], full):
        place = arena[at + S_PREFIX] + position
        since = arena[at + S_HELD_SINCE] if position < arena[at + S_HELD] else now
        arena[place] = add_copy(arena, base, arena[place], since)
    arena[at + S_SHARED] = max(full, arena[at + S_SHARED])
    held = max(arena[at + S_HOLD], rules.blocks_for(arena[at + S_COMPUTED], block_size))
    if held > arena[at + S_HELD]:
        arena[at + S_HELD] = held
        arena[at + S_HELD_SINCE] = now


@kernel
def forget(arena, base, at, tokens):
    """Nobody will find what a request holds beyond `tokens` any more. Returns how many of those blocks others hold, too."""
    kept, others = tokens // arena[G_BLOCK_SIZE], 0
    for place in range(arena[at + S_PREFIX] + kept, arena[at + S_PREFIX] + arena[at + S_SHARED]):
        node = arena[place]
        if arena[node_at(arena, base, node) + N_LATER] != NO_NODE:
            drop_key(arena, base, node)
        let_go(arena, base, place)
        if arena[node_at(arena, base, node) + N_COUNT] > 0:
            others += 1
        else:
            drop_node(arena, base, node)
    arena[at + S_SHARED] = min(arena[at + S_SHARED], kept)
    return others


@kernel
def warm(arena, base):
    """Fill the cache as if all prompts had been served one after the other, as far as it goes."""
    room = arena[base + R_USABLE_BLOCKS]
    for row in range(arena[G_ROWS]):
        first = arena[G_PREFIX_IDS] + arena[arena[G_PREFIX] + row]
        end = arena[G_PREFIX_IDS] + arena[arena[G_PREFIX] + row + 1]
        new = 0
        for place in range(first, end):
            if new < room and arena[arena[base + R_KEYS] + arena[place]] == NO_NODE:
                new += 1
                arena[place] = -1 - arena[place]
        take(arena, base, new)
        for place in range(first, end):
            if arena[place] < 0:
                arena[place] = add_copy(arena, base, -1 - arena[place], 0)
                room -= 1
            else:
                arena[place] = -1 - arena[place]
        for place in range(end - 1, first - 1, -1):
            if arena[place] < 0:
                arena[place] = -1 - arena[place]
                continue
            node = arena[place]
            at = node_at(arena, base, node)
            arena[place] = arena[at + N_KEY]
            arena[at + N_COUNT] = 0
            link(arena, base, node, ENDS)
            arena[base + R_FREE_BLOCKS] += 1
        if room == 0:
            return


# Numbers for the keys of a run.


@kernel
def spans(hashes, low, high):
    """Smallest and largest position of each owner: a hash is taken as owner << POSITION_BITS | position."""
    for place in range(len(hashes)):
        owner, position = hashes[place] >> POSITION_BITS, hashes[place] & ((1 << POSITION_BITS) - 1)
        low[owner] = min(low[owner], position)
        high[owner] = max(high[owner], position)


@kernel
def number(hashes, starts, ids, counts):
    """Hashes to numbers: an owner's begin at starts[owner] (less its smallest position). Counts how often each occurs."""
    for place in range(len(hashes)):
        key = starts[hashes[place] >> POSITION_BITS] + (hashes[place] & ((1 << POSITION_BITS) - 1))
        ids[place] = key
        counts[key] += 1


@kernel
def count_shared(offsets, ids, counts, kept):
    """How many leading blocks of each row another one has, too. kept[0] stays 0."""
    for row in range(len(offsets) - 1):
        place = offsets[row + 1]
        while place > offsets[row] and counts[ids[place - 1]] < 2:
            place -= 1
        kept[row + 1] = place - offsets[row]


@kernel
def pack(offsets, ids, arena):
    """Write the leading keys of each row, as many as the arena's offsets say, into the arena."""
    for row in range(len(offsets) - 1):
        begin, end = arena[arena[G_PREFIX] + row], arena[arena[G_PREFIX] + row + 1]
        for position in range(end - begin):
            arena[arena[G_PREFIX_IDS] + begin + position] = ids[offsets[row] + position]
