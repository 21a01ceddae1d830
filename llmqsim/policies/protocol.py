"""What a policy may see (views) and do (verbs). One policy answers one question and knows no engine and no cluster.

A policy is a frozen dataclass of its parameters; its constructor does no work; state is made when a run starts.

The oracle boundary: nothing a policy can reach tells the true output length of an unfinished request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class RequestView(Protocol):
    """A request as a scheduler sees it. Read-only; there is no `output_tokens` here."""

    row: int
    arrival_ns: int
    prompt_tokens: int
    max_tokens: int
    class_id: int
    computed_tokens: int
    """tokens whose KV exists or is being written by a formed step"""
    known_tokens: int
    """prompt tokens plus output tokens that formed steps have produced or will"""
    kv_blocks: int
    preemptions: int


class ReplicaView(Protocol):
    """One replica's queues when a step is formed."""

    running: Sequence[RequestView]
    """in admission order"""

    def waiting(self) -> Iterable[RequestView]:
        """The waiting queue in the ordering policy's order."""


class StepDraft(Protocol):
    """The step being formed. Its verbs own the accounting, so a policy can't overspend tokens, slots or KV blocks."""

    preempted: bool
    """did anyone lose its blocks while this step was formed?"""
    exhausted: bool
    """is there nothing more to give to running requests: the budget is spent, or one gave up its own place?"""

    def grow(self, request: RequestView) -> bool:
        """Give a running request its next tokens (1 to decode, the rest of its prompt to prefill, as the budget has).

        Takes the KV blocks they need and preempts while too few are free. False: it got none (budget spent, nothing
        to do, or it lost its own place). A request that was preempted in this step is ignored.
        """

    def admit(self, request: RequestView) -> bool:
        """Move the head of the waiting queue into the running list with its first tokens.

        False: slots, token budget, the full-prompt gate or the pool says no; the reason is kept for wait attribution.
        """


class RouterView(Protocol):
    """One replica as the router knows it: only what passed through the router itself."""

    index: int
    outstanding: int
    """requests sent there and not yet finished, counted at the router"""


class Batching(Protocol):
    """What runs in this step?"""

    def form(self, view: ReplicaView, draft: StepDraft) -> None: ...


class Ordering(Protocol):
    """Who is next in the waiting queue? Smaller keys first; ties by row."""

    preempted_go_first: bool
    """does a preempted request wait at the front (vLLM's fcfs), or where its key puts it?"""

    def key(self, request: RequestView) -> tuple | int | float: ...


class Preemption(Protocol):
    """Who gives way when the KV pool is full?"""

    def victim(self, running: Sequence[RequestView]) -> RequestView: ...


class Routing(Protocol):
    """Which replica? `state` is what `start()` returned; ties by lowest index unless the policy says otherwise."""

    sees_state: bool
    """does it look at the replicas? If not, arrivals may be handed out in bulk."""

    def start(self, replicas: int) -> list: ...

    def choose(self, state: list, request: int, replicas: Sequence[RouterView]) -> int: ...
