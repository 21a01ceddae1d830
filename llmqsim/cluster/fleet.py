"""Fleet: all servers of a run as pools of replicas, and how requests go between them. Fixed before the clock starts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from llmqsim import rng
from llmqsim.engine.deployment import Deployment
from llmqsim.engine.handoff import HandoffTerms
from llmqsim.kv.transfer import KvLane, KvLink
from llmqsim.requests import RequestTable

PREFILL, DECODE, BOTH = "prefill", "decode", "both"


@dataclass(frozen=True)
class Pool:
    """Replicas of one kind behind one router. role : what they do: "prefill", "decode" or "both"."""

    name: str
    role: str
    deployment: Deployment


@dataclass(frozen=True)
class Fleet:
    """One pool that does everything, or several. Replicas are numbered through, in the order of pools."""

    pools: tuple[Pool, ...]
    placement: object | None = None
    """which pools a request visits; None: the only one"""
    terms: HandoffTerms = field(default=HandoffTerms())
    link: KvLink | None = None
    lanes: dict[tuple[str, str], KvLane] = field(default_factory=dict)
    """(prefill pool, decode pool) -> what a block of KV is on the way"""

    @classmethod
    def of(cls, servers: Deployment | Fleet) -> Fleet:
        """A single deployment as a fleet; a fleet as it is."""
        return servers if isinstance(servers, Fleet) else cls((Pool("all", BOTH, servers),))

    @property
    def split(self) -> bool:
        """Does any pool compute prompts for another?"""
        return any(pool.role == PREFILL for pool in self.pools)

    @property
    def only(self) -> Deployment | None:
        """The deployment, where there is one pool for everybody."""
        return self.pools[0].deployment if self.placement is None else None

    @property
    def draws(self) -> int:
        """Random numbers that the routers of all pools need for a request."""
        return sum(pool.deployment.routing.draws for pool in self.pools)

    def draw(self, table: RequestTable) -> None:
        """Give a table the routers' draws, if they need any and it has none yet."""
        if table.draws is None and self.draws:
            table.draws = rng.stream(0, 0, "routing").random((len(table), self.draws))

    def draws_of(self, draws: np.ndarray | None, name: str) -> np.ndarray | None:
        """Of all draws (float64[rows, draws]) those of one pool."""
        first = 0
        for pool in self.pools:
            own = pool.deployment.routing.draws
            if pool.name == name:
                return draws[:, first : first + own] if own else None
            first += own
        raise KeyError(name)

    def visitors(self, table: RequestTable) -> dict[str, np.ndarray]:
        """Which requests could visit each pool, bool[rows]."""
        if self.placement is None:
            return {self.pools[0].name: np.ones(len(table), dtype=bool)}
        return self.placement.visitors(table, {pool.name: pool.role for pool in self.pools})

    def first_replica(self, name: str) -> int:
        """Number of a pool's first replica."""
        first = 0
        for pool in self.pools:
            if pool.name == name:
                return first
            first += pool.deployment.replicas
        raise KeyError(name)
