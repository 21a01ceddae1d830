"""A request that has entered its replica once: it keeps its slot until it ends."""

# Part of machine code: kernels read and write these fields.
from __future__ import annotations

from llmqsim.engine.compiled.world.record import Record, listed


class Request(Record):
    """A request in a slot: engine/sequence.py."""

    __slots__ = ()
    row: int  # of the request table
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    class_id: int
    tenant_id: int
    computed_tokens: int
    known_tokens: int  # prompt, and output that steps have made or are making
    generated_tokens: int  # that have reached the client's side
    entered_tokens: int  # known when it last entered
    high_water_tokens: int  # computed before a preemption took them
    last_ns: int  # of its last token, -1: none
    max_gap_ns: int  # the worst gap between tokens, -1: none
    preempted_ns: int  # when it last was
    stage: int  # FREE, ...
    place: int  # in the running list
    drafted: int  # its row in the step that is being formed
    padding_tokens: int  # before its prompt in a batch of equal lengths
    # in the group
    member: int  # NO_MEMBER, ...
    joined_step: int  # number of the step that it joined at
    # its blocks
    hold: int  # blocks that it holds at least
    hit_tokens: int  # that it found cached when it entered
    run: int  # node of its own blocks that are free, NO_NODE: none
    host_run: int  # node of those that the host keeps
    swapped_blocks: int
    was_swapped: int  # 1: once
    keys: int  # where the keys of its prompt's leading blocks lie
    keyed: int  # how many it has
    shared: int  # copies that it holds: their nodes stand in the place of keys
    held: int  # blocks when it last took some
    held_since: int  # admissions then


FREE, WAITING, RUNNING, KEPT, SWAPPED = range(5)
"""Request.stage"""
NO_MEMBER, MEMBER, ENDING = 0, 1, 2
"""Request.member; ENDING: it is in no step that is formed from now"""

request_at = listed(Request)
