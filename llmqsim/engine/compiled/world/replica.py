"""A replica: what it does next, its queue, who runs, its group, its memory, and where its lists lie."""

# Part of machine code: kernels read and write these fields.
from __future__ import annotations

from llmqsim.engine.compiled.world.books import Usage
from llmqsim.engine.compiled.world.queue import Heap
from llmqsim.engine.compiled.world.record import Four, Record, placed


class Replica(Record):
    """A replica. Behind it lie its steps in flight and its lists."""

    __slots__ = ()
    index: int  # 0, 1, ...
    # what happens next
    form_ns: int  # steps are formed
    deliver_ns: int  # the next request on its way is delivered
    deliver_row: int  # which one, -1: none is known
    retry_ns: int  # when the policy wants to be asked again
    asked_ns: int  # the latest such time
    # who waits
    head_row: int  # the first new request, where queues are not sorted
    queued: int  # new requests
    fresh_row: int  # the first that the scheduler has not seen
    fresh: int  # how many of them
    preempted: int  # requests that wait in a slot
    swapped: int  # requests whose blocks are in the host's memory
    blocked_by: int  # what keeps the head of the queue out, rules.WAIT_...
    clock_ns: int  # until when `clocks` count
    clocks: Four  # ns that the head was kept out, by rules.WAIT_...
    # who runs
    running: int
    order_end: int  # places of `order` in use
    ended: int  # of a batch that keeps its slots
    left: int  # requests that have left for good
    # memory
    free_slots: int
    free_blocks: int
    usable_blocks: int
    host_free: int  # blocks for swapped requests
    host_cached: int  # blocks that the host keeps
    spare_node: int  # first of the nodes that were used and are not, NO_NODE: none
    nodes_used: int  # nodes above this have never been used
    admissions: int  # so many requests have entered
    repeated: int  # holders of shared blocks that read them with another
    # steps
    steps: int  # in flight
    oldest: int  # place of the oldest in the ring
    awaited_since_ns: int  # since when it waits for the oldest to end
    stage_free_ns: int  # when the first stage of the pipeline is free
    last_commit_ns: int
    since_ns: int  # until when the integrals of `usage` count
    longest_ns: int  # the longest step so far
    cold_steps: int  # steps with prompts to come that take longer
    # the group (compiled/group)
    open: int  # 1: all who decode are one
    members: int
    context: int  # tokens that members read in the next step
    mixed: int  # 1: somebody who prefills stands before a member
    ends_size: int  # of the heap of ends
    gaps_size: int  # of the stack of gaps
    endings: int  # members that end with the next commit
    prefilling: int  # who runs and is no member
    # the queue, where it is sorted (compiled/queue)
    top: Heap
    fronts: int  # requests that were put at the front
    oldest_row: int  # the first row that was sent here
    last_sent: int  # the last one
    # orderings that look again (compiled/orders)
    coming_row: int  # the first new request without a key
    coming: int  # how many of them
    rejoined: int  # the first preempted request without a key
    last_rejoined: int
    stale: int  # 1: keys have changed since the queue was sorted
    late: int  # the last request that was sent to the back (Entry.later leads on), NOBODY_IN_LINE: none
    timers: Heap  # of those who wait, by the time since when; entries behind those of rows
    starved: Heap  # of those who have waited too long
    actives: int  # tenants on the list `active`
    memory: int  # what the ordering remembers
    tail: int  # last place that was given
    first: int  # first place that was given
    # batching policies
    full_since: int  # `left` when nobody could enter, -1: not so
    ratio_is_set: int
    ratio: float  # share of the remaining output that is reserved
    carried: int  # steps to come without the scheduler
    # where lists lie: of slots, by their number
    order: int  # that run, in order of admission
    stack: int  # that were preempted, the last one first in line
    swaps: int  # that are swapped, by arrival
    free: int  # that are free
    ending: int  # of members that end with the next commit
    kept: int  # that have ended and are kept
    prefill: int  # that run and are no members
    # and others
    ring: int  # steps in flight (Step)
    ends: int  # heap of (step << SLOT_BITS | slot) of members
    gaps: int  # stack of (step, gap)
    nodes: int  # blocks of which it is known what they hold (Node)
    keys: int  # first copy of each key
    host_keys: int  # its node on the host
    residues: int  # members by their length modulo the block size
    classes: int  # members by class
    served: int  # weighted tokens by tenant
    queued_of: int  # requests in the queue by tenant
    members_of: int  # members by tenant
    first_of: int  # the first row in the queue by tenant, NOBODY_IN_LINE: none
    rest_of: int  # heap of the others by tenant (Heap)
    active: int  # list of tenants that may have members
    listed: int  # 1: on that list, by tenant
    slots: int  # requests in slots (Request)
    usage: Usage


GAPS = 4096
"""most gaps that the group remembers"""
SLOT_BITS = 24
SLOT_MASK = (1 << SLOT_BITS) - 1

replica_at = placed(Replica)
