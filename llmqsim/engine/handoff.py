"""Handoff: one request's way from a prefill replica to a decode replica, and how hand-offs go in general.

The two replicas know no more of each other than what stands here; the links and the order of events between them are
in cluster/handoff.py. Protocols: docs/disaggregation.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmqsim.engine.sequence import Sequence

PULL, PUSH, LAYERWISE = "pull", "push", "layerwise"
FROM_PREFILL, WITH_KV, FROM_DECODE = "prefill", "transfer", "decode"


@dataclass(frozen=True)
class HandoffTerms:
    """How KV goes from prefill to decode replicas.

    transfer : "pull": the decode replica reads all blocks once the prompt is computed; "push": the prefill replica
    sends after each chunk, and starts only when the decode replica has taken the blocks; "layerwise": the same, each
    layer as soon as it is computed. first_token : the client has it from the "prefill" replica, with the "transfer"
    (from the decode replica when the KV has arrived), or from "decode", where the last prompt token is computed again.
    """

    transfer: str = PULL
    first_token: str = FROM_PREFILL
    lease_ns: int | None = None
    """pull: a prompt's blocks that nobody has begun to read by then are dropped"""
    reserve_tokens: int = 0
    """tokens that must stay free for each running request when a decode replica takes blocks for a prompt"""
    waiting_share: float | None = None
    """most blocks, as a share of the pool, that prompts may hold at a decode replica before they run"""

    @property
    def pushes(self) -> bool:
        """Does the prefill replica send, rather than the decode replica read?"""
        return self.transfer != PULL


class Handoff:
    """One request between its two replicas."""

    __slots__ = ("row", "terms", "prompt_blocks", "source", "skip_blocks", "sent_blocks", "begun", "fetched")

    def __init__(self, row: int, terms: HandoffTerms, prompt_blocks: int):
        self.row = row
        self.terms = terms
        self.prompt_blocks = prompt_blocks
        self.source: Sequence | None = None
        """the sequence that lends its blocks, once the prompt is computed"""
        self.skip_blocks = 0
        """leading blocks that the decode replica had cached"""
        self.sent_blocks = 0
        """leading blocks that are sent, or need not be"""
        self.begun = False
        """has the decode replica taken blocks for it?"""
        self.fetched = False
        """has all of it arrived?"""

    def skip(self, hit_blocks: int) -> None:
        """The decode replica has these leading blocks cached, so that they need not be sent."""
        self.skip_blocks = self.sent_blocks = min(hit_blocks, self.prompt_blocks)
