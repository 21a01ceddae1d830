"""Trip: one request between two routers, and where it has come to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from llmqsim.cluster.router import Router
from llmqsim.engine.handoff import Handoff
from llmqsim.engine.prefill import Prefilling
from llmqsim.engine.reference import ReferenceReplica
from llmqsim.engine.sequence import Sequence
from llmqsim.kv.transfer import KvLane


class Place(Enum):
    """Who has the request."""

    RESERVING = auto()
    """push: it is with its decode replica, which has taken no blocks yet"""
    PREFILLING = auto()
    """it is with its prefill replica"""
    SENDING = auto()
    """push: computed; the last of its KV is on its way"""
    BETWEEN = auto()
    """pull: computed, and not sent on yet"""
    DECODING = auto()
    """pull: it is with its decode replica, which waits for its KV"""


@dataclass(eq=False)
class Trip:
    """after_ns : from the prefill engine back to whoever sends the request on. chosen : is its decode replica?"""

    row: int
    handoff: Handoff
    lane: KvLane
    prefill: Router
    decode: Router
    prompt_tokens: int
    block_size: int
    arrived_ns: int
    after_ns: int
    chosen: bool = False
    place: Place = Place.PREFILLING
    sender: Prefilling | None = None
    """the replica that lends its blocks"""
    waiting: Sequence | None = None
    """what joined the decode replica's queue"""
    taker: Sequence | None = None
    """the same, once it has taken blocks"""
    at: ReferenceReplica | None = None
    until_ns: int = 0
    """when the last of what was sent so far is there"""
    sending: bool = False
    """is nothing left to be asked for?"""
    expired: bool = False
    over: bool = False

    @property
    def ends(self) -> tuple[str, str]:
        """The links at both of its ends."""
        return (
            f"replica {self.prefill.replica_of(self.row)} out",
            f"replica {self.decode.replica_of(self.row)} in",
        )
