"""The router and the door before it (compiled/routers)."""

# Part of machine code: kernels read and write these fields.
from __future__ import annotations

from llmqsim.engine.compiled.world.record import Record, listed, placed


class Router(Record):
    """The router of a run, and the door before it."""

    __slots__ = ()
    load: int  # what makes a replica the better choice: OUTSTANDING, ...
    count_own: int  # 1: what was sent since the last report counts, too
    all: int  # where the list of replicas lies that every request may go to
    list_of: int  # where the place of each row's list lies, 0: there is one list
    session_of: int  # where each row's session lies, -1: of none; 0: sessions don't matter
    places: int  # where the replica of each session lies, -1: none yet
    work: int  # where work in flight lies (Work)
    reports: int  # where reports lie (Report), 0: nobody reports
    since: int  # where it lies what was sent since (Since)
    period_ns: int  # of reports, 0: the router sees what replicas hold
    report_ns: int  # the next one
    reported_ns: int  # the last one
    on_the_way: int  # sent ones before this have reached their replica
    seen_ns: int  # when it last did something
    blocks_of: int  # where it is said how many blocks the rows before each have, rows + 1 words; 0: prompts share none
    blocks: int  # where the blocks' numbers lie
    numbers: int  # of blocks, there are so many
    memory: int  # where it lies what is remembered of replicas (Memory, and Remembered for each number)
    weights: int  # place of the policy's weights in the step costs, not in the arena
    door: int  # who may enter: OPEN, ...
    reason: int  # why others are refused
    most: int  # requests; of a bucket: 1, if it counts tokens
    window_ns: int  # of what finished of late
    filled_ns: int  # when the bucket was
    ends: int  # where it lies what finished of late at each replica (Line); 0: that does not matter
    ended: int  # where it lies when each row finished (End)
    limits: int  # place of the door's limits in the step costs
    choice: int  # of a policy that was asked in Python, -1: none


OUTSTANDING, REQUESTS, BLOCKS, WORK, MATCH, ASKED = range(6)
"""Router.load, what makes a replica the better choice: fewer requests in flight, requests that it has, blocks that it
holds, work that is expected in flight; or blocks of the prompt that were sent there, weighed against requests in flight.
ASKED: the policy itself says so, in Python (Router.choice)"""
OPEN, BUCKET, CAP_IN_FLIGHT, CAP_WAITING, IN_TIME = range(5)
"""Router.door, who may enter"""


class Report(Record):
    """What a replica last reported."""

    __slots__ = ()
    waiting: int
    running: int
    held: int  # blocks


class Since(Record):
    """What was sent to a replica since."""

    __slots__ = ()
    requests: int
    blocks: int  # of their prompts


class Work(Record):
    """What is in flight at a replica."""

    __slots__ = ()
    prompt_tokens: int
    expected_tokens: int  # of answers


class Remembered(Record):
    """A block that a replica is thought to have. Places in the arena, 0 where it is not remembered."""

    __slots__ = ()
    newer: int  # which one was used next
    older: int  # and which before


class Memory(Record):
    """What is remembered of a replica: the ring of its blocks, of which it is the ends."""

    __slots__ = ()
    oldest: int  # as `newer` of a block
    newest: int  # as `older` of a block
    count: int
    spare: int


class Line(Record):
    """Requests of a replica that have finished of late, in their order."""

    __slots__ = ()
    first_row: int  # -1: none
    last_row: int
    count: int


class End(Record):
    """When a request has finished."""

    __slots__ = ()
    time_ns: int
    next_row: int  # that its replica finished, -1: none yet


router_at = placed(Router)
report_at = listed(Report)
since_at = listed(Since)
work_at = listed(Work)
remembered_at = placed(Remembered)
memory_at = placed(Memory)
line_at = listed(Line)
end_at = listed(End)

MEMORY_WORDS, REMEMBERED_WORDS, LINE_WORDS = Memory.words, Remembered.words, Line.words
