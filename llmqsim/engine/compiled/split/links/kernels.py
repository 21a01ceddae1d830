"""KV on its links: cluster/link.py in arrays. Arguments as in trips/kernels.py."""

from __future__ import annotations

from llmqsim.engine import rules
from llmqsim.engine.compiled.columns import REPLICA_OF
from llmqsim.engine.compiled.split.layout import *
from llmqsim.jit import kernel
from llmqsim.requests import HANDOFF_INDEX

PREFILL_REPLICA = HANDOFF_INDEX["prefill_replica"]
TRANSFER_START = HANDOFF_INDEX["transfer_start_ns"]
TRANSFER_BLOCKS, TRANSFER_BYTES = HANDOFF_INDEX["transfer_blocks"], HANDOFF_INDEX["transfer_bytes"]


@kernel
def over_link(arena, link, asked, size, fragments):
    """Carry bytes behind all that a link was asked for before; returns when they are across."""
    at = arena[G_LINKS] + link * LINK
    begin = max(asked, arena[at + K_FREE_NS])
    taken = rules.carry_ns(size, fragments, arena[G_BYTES_PER_US], arena[G_PER_FRAGMENT_NS])
    arena[at + K_FREE_NS] = begin + taken
    arena[at + K_TRANSFERS] += 1
    arena[at + K_BYTES] += size
    arena[at + K_BUSY_NS] += taken
    arena[at + K_QUEUED_NS] += begin - asked
    return begin + taken


@kernel
def over_links(table, marks, arena, row, asked, size, fragments):
    """Carry bytes from one end of a request's way to the other; returns when they are there."""
    if arena[G_SHARED] != 0:
        return over_link(arena, 0, asked, size, fragments) + arena[G_LATENCY_NS]
    until = over_link(arena, marks[PREFILL_REPLICA, row], asked, size, fragments)
    return max(until, over_link(arena, table[REPLICA_OF, row], asked, size, fragments)) + arena[G_LATENCY_NS]


@kernel
def carry(table, marks, arena, row, blocks, start, now):
    """Put a request's blocks on its links; layer by layer, all but the last layer could go since `start`. Returns when
    they are there.
    """
    size, fragments = blocks * arena[G_LANE_BYTES], blocks * arena[G_FRAGMENTS]
    asked = now
    if arena[G_TRANSFER] == LAYERWISE:
        asked = start
        body, first = rules.layerwise_body(size, arena[G_LAYERS]), rules.layerwise_body(fragments, arena[G_LAYERS])
        if body > 0:
            over_links(table, marks, arena, row, start, body, first)
        size, fragments = size - body, fragments - first
    if marks[TRANSFER_START, row] < 0:
        marks[TRANSFER_START, row] = asked
    marks[TRANSFER_BLOCKS, row] += blocks
    marks[TRANSFER_BYTES, row] += blocks * arena[G_BLOCK_BYTES]
    return over_links(table, marks, arena, row, now, size, fragments)
