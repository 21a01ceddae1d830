"""What a policy is: one class answers one question and knows no engine and no cluster; views.py has what it may see.

A policy is a frozen dataclass of its parameters; its constructor does no work; state is made when a run starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from llmqsim.policies.keys import FixedKeys, OrderingTable
from llmqsim.policies.views import (
    FrontView,
    PlacedRequest,
    PlacementTable,
    PoolView,
    ReplicaView,
    RequestView,
    RoutedRequest,
    RouterView,
    Signal,
    StepDraft,
)

if TYPE_CHECKING:
    from llmqsim.policies.order_view import OrderView


__all__ = [
    "Admission",
    "Batching",
    "FixedKeys",
    "FrontView",
    "Ordering",
    "OrderingTable",
    "PlacedRequest",
    "Placement",
    "PlacementTable",
    "PoolView",
    "Preemption",
    "ReplicaView",
    "RequestView",
    "RoutedRequest",
    "RouterView",
    "Routing",
    "Signal",
    "StepDraft",
]


class Batching(ABC):
    """What runs in this step? Base of batching policies."""

    keeps_slots = False
    """do requests that ended keep slot and blocks until all of the batch has?"""
    has_token_budget = True
    """does max_num_batched_tokens limit a step? Without, slots and memory alone do"""
    holds_maximum = False
    """does a request hold the blocks of prompt + max_tokens from its admission on?"""
    takes_swapped = False
    """does it bring swapped requests back? Others can only recompute."""
    takes_ranks = False
    """does it serve orderings that preempt (view.ranked)?"""
    needs_chunks = False
    """does it split prompts, so that it needs enable_chunked_prefill?"""
    needs: tuple[str, ...] = ()
    """columns of the request table without which it makes no sense"""
    spare_blocks = 0
    """blocks that must be free beside what a request needs; one that could never have them is refused at the door"""

    def start(self) -> Any:
        """The policy's memory between the steps of one replica of one run (`view.state`)."""
        return None

    @abstractmethod
    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Fill the draft."""


class Ordering:
    """Who is next in the waiting queue? Base of ordering policies: smaller keys first; ties by row.

    An ordering with fixed keys needs `key` alone (and `late_key`, `fixed_keys`). One that looks again sets `reviews`,
    keeps its memory in `view.state` and says when keys have changed; a look at n waiting requests then costs O(n log n) in
    the reference engine. The compiled forms of the built-in ones move only those whose place has changed.
    """

    preempted_go_first = True
    """does a preempted request wait at the front (vLLM's fcfs), or where its key puts it?"""
    preempts = False
    """does a waiting request that ranks before a running one take its place? (batching policies with `takes_ranks`)"""
    swaps_ahead = False
    """do those without a slot keep their KV on the GPU, and are they copied to the host and back ahead of need?"""
    reviews = False
    """are the methods from `start` to `ran` called?"""
    needs: tuple[str, ...] = ()
    """columns of the request table without which it makes no sense: predicted_tokens, deadline_ns"""

    def __init_subclass__(cls) -> None:
        """An ordering without a key is found out when its class is written, not in the midst of a run."""
        super().__init_subclass__()
        if cls.key is Ordering.key and cls.key_at is Ordering.key_at:
            raise TypeError(f"{cls.__name__} is an ordering and must define key (or key_at, if its keys change)")

    def key(self, request: RequestView) -> Any:
        """Key of a request when it joins; an ordering that defines `key_at` needs none."""
        raise NotImplementedError(f"{type(self).__name__} has keys only as of a moment (key_at)")

    def late_key(self, request: RequestView, now_ns: int) -> Any:
        """Key of a request that goes to the back: behind all of its kind that have joined until now."""
        raise NotImplementedError(f"{type(self).__name__} can't send a request to the back of the queue")

    def fixed_keys(self, table: OrderingTable) -> FixedKeys | None:
        """The same keys for all requests at once, where they are fixed when a request joins; None: they are not.

        They order requests as `key` and `late_key` do. The compiled engine sorts its queue by them.
        """
        return None

    def key_at(self, request: RequestView, view: OrderView) -> Any:
        """Key of a waiting or running request as things are now; asked when it joins, and again after a review."""
        return self.key(request)

    def start(self) -> Any:
        """The memory of one replica of one run (`view.state`)."""
        return None

    def joined(self, request: RequestView, view: OrderView) -> None:
        """A request is about to join the queue, new or preempted."""

    def left(self, request: RequestView, view: OrderView, entered: bool) -> bool:
        """It has left the queue, into a step or because it ended; True: give keys again, in the midst of the step."""
        return False

    def review(self, view: OrderView) -> bool:
        """A step is about to be formed; True: everybody who waits gets a new key."""
        return False

    def ran(self, view: OrderView, rows: Iterable[tuple[RequestView, int, bool]], duration_ns: int) -> None:
        """A step was formed: (request, tokens, does it make an output token?) of each row, and how long it will take."""


class Preemption(ABC):
    """Who gives way when the KV pool is full, and where does its KV go? Base of preemption policies."""

    swaps = False
    """to the host's memory (as far as it has room), or nowhere: it is computed again"""
    needs: tuple[str, ...] = ()
    """columns of the request table without which it makes no sense"""

    @abstractmethod
    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """One of the running requests."""

    def to_host(self, victim: RequestView) -> bool:
        """Is this one swapped? Asked where the policy `swaps`."""
        return True


class Admission(ABC):
    """May a request enter? Base of admission policies. `state` is what `start` returned."""

    open = False
    """does it let everybody in?"""
    needs_deadlines = False
    """does it look at `due_ns`?"""
    reads_signals = False
    """does it look at what replicas report?"""
    reason = "queue_full"
    """why it refuses: one of requests.Reason, in small letters"""

    def start(self) -> list:
        """The policy's memory of one run."""
        return []

    @abstractmethod
    def admit(self, state: list, request: RoutedRequest, front: FrontView) -> bool:
        """May it enter now?"""


class Routing(ABC):
    """Which replica? Base of routing policies. `state` is what `start` returned; `choose` returns the index of one of
    the views it was given, which may be fewer than all (`routing.late_binding`).
    """

    sees_state = False
    """does it look at the replicas? If not, arrivals may be handed out in bulk."""
    reads_signals = False
    """does it look at what replicas report?"""
    draws = 0
    """random numbers that it needs for each request"""
    needs_predictions = False
    """does it need `predicted_tokens`?"""

    def start(self, replicas: int) -> list:
        """The policy's memory of one run."""
        return []

    def unfit(self, replicas: int, classes: tuple[str, ...]) -> str | None:
        """What of its parameters does not go with so many replicas and these traffic classes; None if all does."""
        return None

    @abstractmethod
    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """The index of one of the views."""

    def finished(self, state: list, request: RoutedRequest, index: int) -> None:  # noqa: B027  (few routers ask)
        """A request that was sent to this replica has ended, or was taken back."""


class Placement(Protocol):
    """Which pools does a request visit? Pools are given as {name: role}; a route is one pool, or prefill and decode."""

    def routes(self, pools: Any, classes: tuple[str, ...]) -> tuple[tuple[str, ...], ...]: ...

    def visitors(self, table: PlacementTable, pools: Any) -> dict[str, Any]: ...

    def stages(self, request: PlacedRequest, pools: Any) -> tuple[str, ...]: ...
