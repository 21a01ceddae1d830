"""Preemption by swap: a request's blocks go to the host's memory, and come back before it runs on."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from llmqsim.engine import rules
from llmqsim.engine.sequence import Sequence, Stage
from llmqsim.errors import InvariantError

if TYPE_CHECKING:
    from llmqsim.engine.reference import ReferenceReplica


def out(replica: ReferenceReplica, victim: Sequence) -> int | None:
    """Move a victim, already out of the running list, to the host; return the blocks to copy, None without room."""
    blocks = victim.kv_blocks
    if not replica.host_pool.take(blocks):
        replica.usage.swap_refused += 1
        return None
    victim.swapped_blocks = blocks
    victim.preempted_ns = replica.env.now
    victim.stage = Stage.SWAPPED
    replica.pool.release(victim)
    insort(replica.swapped, victim, key=lambda s: (s.arrival_ns, s.row))
    replica.usage.swapped_blocks += blocks
    return blocks


def back(replica: ReferenceReplica, sequence: Sequence) -> int:
    """Bring a swapped request back into the running list; return the blocks to copy, 0 if they are not free."""
    blocks = sequence.swapped_blocks
    if not rules.may_return(blocks, replica.pool.free_blocks, replica.watermark_blocks, len(replica.running)):
        return 0
    if not replica.pool.take(sequence, blocks):
        raise InvariantError(f"{replica}: swapped in without room for {blocks} blocks: {sequence}")
    replica.host_pool.release(blocks)
    sequence.swapped_blocks = 0
    replica.swapped.remove(sequence)
    replica.queue.settle(sequence, replica.env.now)
    sequence.stage = Stage.RUNNING
    sequence.entered_with = sequence.known_tokens
    replica.running.append(sequence)
    replica.usage.swapped_blocks += blocks
    return blocks
