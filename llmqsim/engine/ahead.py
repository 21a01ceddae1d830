"""Copies of KV ahead of need: while a step runs, those that are not in it go to the host's memory, or come back from it.

With an ordering that `swaps_ahead`, requests keep their KV on the GPU beside those that fill the slots of a step, as long as
there is room. FastServe (Wu et al. 2023; docs/engine_semantics.md) keeps as many blocks free as a step has slots, so that
newcomers and growing requests find memory at once; the last of the order go first. In a step in which nobody goes out,
the first of the order come back, as long as so many blocks stay free. A step lasts at least as long as these copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmqsim.engine import swap
from llmqsim.engine.plan import StepPlan
from llmqsim.engine.sequence import Sequence

if TYPE_CHECKING:
    from llmqsim.engine.reference import ReferenceReplica

NEW_FROM = 10
"""new requests enter while at least one in so many of the host's blocks is free (FastServe)"""


def holds_new(replica: ReferenceReplica) -> bool:
    """Is the host's memory so full that new requests wait, because others could not make room for them?"""
    return replica.host_pool.free_blocks * NEW_FROM < replica.host_pool.blocks


def copy(replica: ReferenceReplica, plan: StepPlan, went_out: bool) -> None:
    """Choose the copies beside a step that is formed. went_out : has anybody lost its memory for it already?"""
    order, pool, spare = replica.order, replica.pool, replica.options.max_num_seqs
    paused = sorted((s for s in replica.running if s.row not in plan.rows), key=order.rank, reverse=True)
    for request in paused:
        if pool.free_blocks >= spare or not _fits_host(replica, request):
            break
        pool.forget(request, request.computed_tokens)
        plan.ahead_blocks += replica.preempt(request, last=False)
        went_out = True
    if went_out:
        return
    for request in sorted(replica.swapped, key=order.rank):
        if pool.free_blocks - request.swapped_blocks < spare or not (blocks := swap.back(replica, request)):
            break
        plan.ahead_blocks += blocks


def _fits_host(replica: ReferenceReplica, request: Sequence) -> bool:
    return replica.preemption.to_host(request) and replica.host_pool.free_blocks >= request.kv_blocks
