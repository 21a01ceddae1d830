"""A routing policy of one's own before compiled replicas: asked when a request is due, with the views that it knows."""

from __future__ import annotations

import numpy as np

from llmqsim.cluster.routed import Routed
from llmqsim.cluster.signals import Report
from llmqsim.engine.compiled import Replicas
from llmqsim.engine.deployment import Deployment
from llmqsim.kv.pool import KvPool
from llmqsim.requests import RequestTable


class Seen:
    """One compiled replica: policies.protocol.RouterView. reports, since : int64[replicas, words], the router's own."""

    __slots__ = ("_reports", "_since", "block_size", "index", "outstanding", "usable_blocks")

    def __init__(self, index: int, servers: Deployment, reports: np.ndarray, since: np.ndarray):
        self.index = index
        self.outstanding = 0
        self.block_size = servers.options.block_size
        self.usable_blocks = KvPool(servers.kv_blocks, self.block_size).usable_blocks
        self._reports, self._since = reports, since

    @property
    def signal(self) -> Report:
        """What it reported."""
        return Report(*self._reports[self.index].tolist())

    @property
    def sent_since(self) -> int:
        """Requests sent since the report; none where the router sees what the replica holds."""
        return int(self._since[self.index, 0])

    @property
    def blocks_since(self) -> int:
        """KV blocks of their prompts."""
        return int(self._since[self.index, 1])


class Asked:
    """`choose` asks the policy where a request goes."""

    def __init__(self, table: RequestTable, servers: Deployment, replicas: Replicas):
        self._table, self._policy = table, servers.routing
        self._state = servers.routing.start(servers.replicas)
        self._outstanding, reports, since = replicas.counts
        self._views = [Seen(index, servers, reports, since) for index in range(servers.replicas)]

    def choose(self, row: int) -> int:
        """Index of the replica."""
        for view, outstanding in zip(self._views, self._outstanding.tolist(), strict=True):
            view.outstanding = outstanding
        request = Routed(self._table, row, self._table.draws)
        return self._views[self._policy.choose(self._state, request, self._views)].index
