"""What a policy may see (views) and do (verbs). One policy answers one question and knows no engine and no cluster.

A policy is a frozen dataclass of its parameters; its constructor does no work; state is made when a run starts.

The oracle boundary: nothing a policy can reach tells the true output length of an unfinished request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from llmqsim.policies.keys import FixedKeys, OrderingTable

if TYPE_CHECKING:
    from llmqsim.policies.order_view import OrderView


__all__ = [
    "Batching",
    "FixedKeys",
    "Ordering",
    "OrderingTable",
    "Preemption",
    "ReplicaView",
    "RequestView",
    "RouterView",
    "Routing",
    "StepDraft",
]


class RequestView(Protocol):
    """A request as a scheduler sees it. Read-only; there is no `output_tokens` here."""

    row: int
    arrival_ns: int
    prompt_tokens: int
    max_tokens: int
    class_id: int
    tenant_id: int
    priority: int
    """lower is more urgent"""
    deadline_ns: int
    """due so long after its arrival, ns; -1: no deadline"""
    due_at_end: bool
    """is that for the last token? Else for the first"""
    targets: Any
    """what its class is promised: ttft_ns, tpot_ns, e2e_ns, None where there is none"""
    predicted_tokens: int
    """output tokens that the predictor expected of it at its arrival; -1 without a predictor"""
    expected_tokens: int
    """the same, corrected once it has outlived them, if the predictor says so"""
    remaining_tokens: int
    """of these, still to come; at least 1"""
    computed_tokens: int
    """tokens whose KV exists or is being written by a formed step"""
    known_tokens: int
    """prompt tokens plus output tokens that formed steps have produced or will"""
    generated_tokens: int
    """output tokens delivered"""
    kv_blocks: int
    preemptions: int


class ReplicaView(Protocol):
    """One replica's queues when a step is formed."""

    now_ns: int
    running: Sequence[RequestView]
    """in admission order"""
    ended: Sequence[RequestView]
    """requests that have ended and keep their slots (batching policies with `keeps_slots`)"""
    swapped: Sequence[RequestView]
    """preempted requests whose KV is in the host's memory, by arrival"""
    state: Any
    """what the batching policy's `start` returned: its memory between steps"""
    left: int
    """requests that have ended here so far"""
    free_blocks: int
    """KV blocks that nobody holds now, cached ones included"""
    usable_blocks: int
    """KV blocks that requests can hold together"""
    block_size: int
    """tokens of a block"""
    token_budget: int
    """max_num_batched_tokens"""
    max_num_seqs: int
    """slots"""
    chunked_prefill: bool
    """may a prompt be split over several steps?"""
    ranks: bool
    """does the ordering preempt? then running requests have a place in its order, too"""

    def ranked(self) -> Iterable[RequestView]:
        """Everybody who runs, waits or is swapped, in one list by the ordering's keys of now."""

    def waiting(self) -> Iterable[RequestView]:
        """The waiting queue in the ordering policy's order."""

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold this many tokens."""

    def hit_tokens(self, request: RequestView) -> int:
        """Leading tokens of a waiting request that are cached now."""


class StepDraft(Protocol):
    """The step being formed. Its verbs own the accounting, so a policy can't overspend tokens, slots or KV blocks."""

    budget: int
    """tokens that can still be given in this step"""
    preempted: bool
    """did anyone lose its blocks while this step was formed?"""
    exhausted: bool
    """is there nothing more to give to running requests: the budget is spent, or one gave up its own place?"""
    prefills: bool
    """does the step hold prompt tokens?"""

    def grow(self, request: RequestView, at_most: int | None = None, spare_blocks: int = 0) -> bool:
        """Give a running request its next tokens (1 to decode, the rest of its prompt to prefill, as the budget has).

        at_most : tokens. spare_blocks : this many must be free, also when none is needed. Takes the KV blocks and
        preempts while too few are free. False: it got none (budget spent, nothing to do, or it lost its own place). A
        request that was preempted in this step is ignored.
        """

    def admit(
        self,
        request: RequestView,
        at_most: int | None = None,
        hold_tokens: int = 0,
        padding_tokens: int = 0,
        watermark: bool = True,
    ) -> bool:
        """Move a waiting request into the running list with its first tokens.

        at_most : tokens. hold_tokens : take the blocks of this many tokens now (at least those of its first tokens).
        padding_tokens : prompt tokens computed beside its own. watermark : leave `engine.watermark` free if others run.
        False: slots, token budget, the full-prompt gate or the pool says no; the reason is kept for wait attribution.
        """

    def preempt(self, victim: RequestView, last: bool = False) -> None:
        """Take a running request's blocks. last: it waits behind everybody, and its KV is not kept cached."""

    def displace(self, request: RequestView) -> bool:
        """Preempt running requests that rank behind a waiting one, the last first, until it can enter; then `admit` it.

        False, and nobody is touched, where that would not be enough. Who has made no token since it last entered is
        never displaced: every entry brings a token, so that no run goes round in circles.
        """

    def swap_in(self, request: RequestView) -> bool:
        """Bring a swapped request back into the running list if slot, budget and memory allow; then `grow` it."""

    def idle(self, request: RequestView) -> None:
        """Compute a row for a request that has ended and keeps its slot."""

    def carry_on(self, saved: float) -> None:
        """The scheduler is not called for this step: it does without so large a share of the host's time a step."""

    def hold_back(self, reason: str, until_ns: int | None = None) -> None:
        """Say why the policy lets nobody enter ("slots", "kv", "token_budget"), and when to ask again at the latest."""


class Signal(Protocol):
    """What a replica reports of itself, as of `routing.signal_age` ago at most."""

    waiting: int
    """requests in its queue, preempted ones included"""
    running: int
    """requests that hold a slot"""
    held_blocks: int
    """KV blocks that requests hold"""


class RouterView(Protocol):
    """One replica as the router knows it: what passed through the router itself, and what the replica reported."""

    index: int
    outstanding: int
    """requests sent there and not yet finished, counted at the router"""
    signal: Signal
    """the last report, for policies with `reads_signals`"""
    sent_since: int
    """requests sent there since the report and not yet finished"""
    blocks_since: int
    """KV blocks of their prompts"""
    block_size: int
    usable_blocks: int
    """KV blocks that its pool has"""


class RoutedRequest(Protocol):
    """A request as the router sees it when it arrives. There is no `output_tokens` here."""

    row: int
    prompt_tokens: int
    max_tokens: int
    class_name: str
    tenant_id: int
    priority: int
    predicted_tokens: int
    """-1 without a predictor"""
    due_ns: int
    """when its first token (or, without a TTFT target, its last) is promised; -1 without a target"""
    prefix_blocks: Sequence[int]
    """hashes of the prompt's leading full KV blocks that others may share, from the start"""
    draws: Sequence[float]
    """as many numbers in [0, 1) as the policy's `draws`, this request's own"""


class Batching:
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

    def form(self, view: ReplicaView, draft: StepDraft) -> None:
        """Fill the draft."""
        raise NotImplementedError(f"{type(self).__name__} must say what runs in a step")


class Ordering:
    """Who is next in the waiting queue? Base of ordering policies: smaller keys first; ties by row.

    An ordering with fixed keys needs `key` alone (and `late_key`, `fixed_keys`). One that looks again sets `reviews`,
    keeps its memory in `view.state` and says when keys have changed; a look at n waiting requests costs O(n log n).
    """

    preempted_go_first = True
    """does a preempted request wait at the front (vLLM's fcfs), or where its key puts it?"""
    preempts = False
    """does a waiting request that ranks before a running one take its place? (batching policies with `takes_ranks`)"""
    reviews = False
    """are the methods from `start` to `ran` called?"""
    needs: tuple[str, ...] = ()
    """columns of the request table without which it makes no sense: predicted_tokens, deadline_ns"""

    def key(self, request: RequestView) -> Any:
        """Key of a request when it joins."""
        raise NotImplementedError(f"{type(self).__name__} must give a key")

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


class Preemption:
    """Who gives way when the KV pool is full, and where does its KV go? Base of preemption policies."""

    swaps = False
    """to the host's memory (as far as it has room), or nowhere: it is computed again"""
    needs: tuple[str, ...] = ()
    """columns of the request table without which it makes no sense"""

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """One of the running requests."""
        raise NotImplementedError(f"{type(self).__name__} must choose a victim")

    def to_host(self, victim: RequestView) -> bool:
        """Is this one swapped? Asked where the policy `swaps`."""
        return True


class FrontView(Protocol):
    """All replicas together, as admission sees them when a request arrives."""

    now_ns: int
    outstanding: int
    """requests that were let in and have not finished"""
    waiting: int
    """of these, in the replicas' queues (as last reported) or held at the router"""

    def finished_within(self, window_ns: int) -> int:
        """Requests that finished in the last `window_ns`."""


class Admission:
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

    def admit(self, state: list, request: RoutedRequest, front: FrontView) -> bool:
        """May it enter now?"""
        raise NotImplementedError(f"{type(self).__name__} must say who may enter")


class Routing:
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

    def choose(self, state: list, request: RoutedRequest, replicas: Sequence[RouterView]) -> int:
        """The index of one of the views."""
        raise NotImplementedError(f"{type(self).__name__} must choose a replica")

    def finished(self, state: list, request: RoutedRequest, index: int) -> None:
        """A request that was sent to this replica has ended, or was taken back."""


class PlacedRequest(Protocol):
    """A request as placement sees it, when it arrives."""

    row: int
    prompt_tokens: int
    max_tokens: int
    class_name: str


class PoolView(Protocol):
    """One pool as placement sees it."""

    name: str
    role: str
    """prefill, decode or both"""
    outstanding: int
    """requests sent there and not yet finished"""

    def hit_tokens(self, row: int) -> int:
        """Leading prompt tokens that are cached now at the replica that the pool's router chooses for this request.

        Asking settles the choice: the request will decode there.
        """


class PlacementTable(Protocol):
    """All requests as placement may see them before the run; no output lengths."""

    prompt_tokens: Any
    max_tokens: Any
    class_id: Any
    classes: tuple[str, ...]

    def __len__(self) -> int: ...


class Placement(Protocol):
    """Which pools does a request visit? Pools are given as {name: role}; a route is one pool, or prefill and decode."""

    def routes(self, pools: Any, classes: tuple[str, ...]) -> tuple[tuple[str, ...], ...]: ...

    def visitors(self, table: PlacementTable, pools: Any) -> dict[str, Any]: ...

    def stages(self, request: PlacedRequest, pools: Any) -> tuple[str, ...]: ...
