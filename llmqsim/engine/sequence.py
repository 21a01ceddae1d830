"""Sequence: a request while a replica holds it. Policies read it as a RequestView; only the engine writes it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from llmqsim.policies import rules as policy_rules
from llmqsim.requests import RequestTable

if TYPE_CHECKING:
    from llmqsim.engine.handoff import Handoff


class Stage(IntEnum):
    """Where a sequence stands within its replica."""

    WAITING = 0
    RUNNING = 1
    FINISHED = 2
    SWAPPED = 3
    ABORTED = 4
    LENT = 5
    """its prompt is computed, and its blocks wait here to be fetched by the replica that decodes"""
    LOADING = 6
    """it holds blocks, and their KV is on its way"""
    LOADED = 7
    """its KV has arrived; it waits for a slot"""


class Sequence:
    """One request in flight. The true output length is not here: the engine keeps it where no policy can look."""

    __slots__ = (
        "row",
        "arrival_ns",
        "prompt_tokens",
        "max_tokens",
        "class_id",
        "tenant_id",
        "priority",
        "deadline_ns",
        "targets",
        "predicted_tokens",
        "_re_estimate",
        "computed_tokens",
        "known_tokens",
        "generated_tokens",
        "awaited_tokens",
        "kv_blocks",
        "block_ids",
        "hashed_blocks",
        "prefix",
        "hit_tokens",
        "cached_tokens",
        "padding_tokens",
        "preemptions",
        "stage",
        "queue_key",
        "high_water_tokens",
        "last_token_ns",
        "max_itl_ns",
        "first_scheduled_ns",
        "first_token_ns",
        "delivered_ns",
        "wait_ns",
        "wait_preempted_ns",
        "clock_at_entry",
        "preempted_ns",
        "swapped_blocks",
        "entered_with",
        "handoff",
        "first_after_ns",
    )

    def __init__(self, table: RequestTable, row: int):
        self.row = row
        self.arrival_ns = int(table.arrival_ns[row])
        self.prompt_tokens = int(table.prompt_tokens[row])
        self.max_tokens = int(table.max_tokens[row])
        self.class_id = int(table.class_id[row])
        self.tenant_id = int(table.tenant_id[row])
        self.priority = int(table.priority[row])
        self.deadline_ns = int(table.deadline_ns[row])
        self.targets = table.targets[self.class_id]
        self.predicted_tokens = int(table.predicted_tokens[row])
        self._re_estimate = float(table.re_estimate)
        self.computed_tokens = 0
        self.known_tokens = self.prompt_tokens
        self.generated_tokens = 0
        self.awaited_tokens = 0
        self.kv_blocks = 0
        self.block_ids: list[int] = []
        self.hashed_blocks = 0
        self.prefix: list[int] | None = None
        self.hit_tokens = 0
        self.cached_tokens = 0
        self.padding_tokens = 0
        self.preemptions = 0
        self.stage = Stage.WAITING
        self.queue_key: tuple | None = None
        self.high_water_tokens = 0
        self.last_token_ns = -1
        self.max_itl_ns = -1
        self.first_scheduled_ns = -1
        self.first_token_ns = -1
        self.delivered_ns = -1
        self.wait_ns = (0, 0, 0, 0)
        self.wait_preempted_ns = 0
        self.clock_at_entry: tuple[int, ...] | None = None
        self.preempted_ns = -1
        self.swapped_blocks = 0
        self.entered_with = 0
        self.first_after_ns = -1
        """from the engine that made its first token to the client, where another one goes on"""
        self.handoff: Handoff | None = None
        """its way from a prefill replica to a decode replica; None: it is served in one place"""

    @property
    def due_at_end(self) -> bool:
        """Is its deadline that of the last token? Else of the first."""
        return self.targets.ttft_ns is None

    @property
    def told_elsewhere(self) -> bool:
        """Is its story still being written by the replica that computes its prompt?"""
        handoff = self.handoff
        return handoff is not None and handoff.terms.pushes and handoff.begun and not handoff.fetched

    def waited_for_step(self, now_ns: int) -> None:
        """The scheduler sees it for the first time since it was delivered here."""
        step, *others = self.wait_ns
        self.wait_ns = (step + now_ns - self.delivered_ns, *others)

    def inherit(self, prefilled: Sequence) -> None:
        """Take over, where it decodes, what it has been through where its prompt was computed."""
        self.first_scheduled_ns = prefilled.first_scheduled_ns
        self.first_token_ns = self.last_token_ns = prefilled.first_token_ns
        self.generated_tokens = prefilled.generated_tokens
        self.first_after_ns = prefilled.first_after_ns
        self.wait_ns = tuple(a + b for a, b in zip(self.wait_ns, prefilled.wait_ns, strict=True))
        self.wait_preempted_ns += prefilled.wait_preempted_ns
        self.preemptions += prefilled.preemptions
        self.cached_tokens += prefilled.cached_tokens
        self.high_water_tokens = max(self.high_water_tokens, self.prompt_tokens)

    @property
    def expected_tokens(self) -> int:
        """The prediction, corrected where it has been outlived and the predictor says so."""
        return policy_rules.predicted_output(*self._prediction())

    @property
    def remaining_tokens(self) -> int:
        """Output tokens that are still expected of it: at least 1."""
        return policy_rules.remaining_tokens(*self._prediction())

    def _prediction(self) -> tuple[int, int, int, float]:
        return self.predicted_tokens, self.generated_tokens, self.max_tokens, self._re_estimate

    def __repr__(self) -> str:
        return (
            f"request {self.row} ({self.prompt_tokens} prompt tokens, {self.computed_tokens} computed of "
            f"{self.known_tokens} known, {self.kv_blocks} KV blocks, {self.stage.name.lower()})"
        )
