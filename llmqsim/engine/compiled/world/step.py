"""A step in flight, or being formed, and its rows."""

# Part of machine code: kernels read and write these fields.
from __future__ import annotations

from llmqsim.engine.compiled.world.record import Record, listed, placed


class Step(Record):
    """A step of a replica. Behind it lie the slots whose rows sample a token (GONE: it has ended)."""

    __slots__ = ()
    samples: int  # where these slots lie
    sampled: int  # how many
    start_ns: int
    end_ns: int
    duration_ns: int
    # what it computes
    decodes: int
    kv_tokens: int  # that they read
    prefill_tokens: int
    chunks: int  # rows with prompt tokens
    context_tokens: int  # the longest context of these
    recomputed_tokens: int
    cached_tokens: int
    loaded_blocks: int  # from what the host keeps
    copied_blocks: int  # of swapped requests
    padding_tokens: int
    idle_rows: int  # for nobody
    idle_kv_tokens: int
    saved_ns: int  # of the host's time
    gone: int  # rows of members who had ended
    # how things stood when it was formed
    running: int
    waiting: int
    kv_blocks: int
    # while it is formed
    budget: int  # tokens that are left
    rows: int  # so far
    preempted: int  # 1: somebody lost its blocks
    exhausted: int  # 1: nobody gets more
    listed: int  # requests in the list of an ordering that preempts
    blocked_by: int  # what keeps the head of the queue out


class Drafted(Record):
    """A row of the step that is being formed, in the order of granting."""

    __slots__ = ()
    slot: int  # GONE: it was taken back
    tokens: int
    samples: int  # 1: it makes a token
    query_tokens: int  # 0: it decodes
    kv_tokens: int


step_at = placed(Step)
drafted_at = listed(Drafted)
