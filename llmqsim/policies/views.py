"""What a policy may see of requests, replicas and pools, and the verbs by which it acts. Read-only but for the verbs.

The oracle boundary: nothing a policy can reach tells the true output length of an unfinished request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


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
    max_model_len: int
    """tokens of the longest sequence, prompt and answer; 2^60 where there is no limit"""
    watermark_blocks: int
    """KV blocks that must stay free when a request enters beside others"""
    chunked_prefill: bool
    """may a prompt be split over several steps?"""
    swaps_ahead: bool
    """does the ordering swap ahead of need? then more requests run than a step has slots for"""
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

    is_full: bool
    """has the step no slot or no token left?"""
    holds_new: bool
    """is the host's memory too full for new requests? (orderings that swap ahead)"""

    def copy_ahead(self) -> None:
        """Choose the copies between GPU and host that go on while the step runs."""

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


class FrontView(Protocol):
    """All replicas together, as admission sees them when a request arrives."""

    now_ns: int
    outstanding: int
    """requests that were let in and have not finished"""
    waiting: int
    """of these, in the replicas' queues (as last reported) or held at the router"""

    def finished_within(self, window_ns: int) -> int:
        """Requests that finished in the last `window_ns`."""


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
