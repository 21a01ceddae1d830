"""How the router shared the requests out, and what that meant for latency and cache hits at each replica."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmqsim.metrics.distribution import NS_PER_S, exact_sum, ratio
from llmqsim.metrics.latency import completed, per_request_ns
from llmqsim.requests import RequestTable


def routing(table: RequestTable, served: np.ndarray, replicas: int) -> dict[str, Any] | None:
    """One entry a replica, over a mask (bool[rows]: arrived, not rejected); None where there is one replica only."""
    if replicas < 2:
        return None
    sent = served & (table.replica >= 0)
    done = sent & completed(table)
    each = [sent & (table.replica == index) for index in range(replicas)]
    counts = [int(mask.sum()) for mask in each]
    return {
        "share_per_replica": [ratio(count, sum(counts)) for count in counts],
        "ttft_mean_s_per_replica": [_ttft(table, mask & done) for mask in each],
        "hit_share_per_replica": [
            ratio(int(table.cached_tokens[mask].sum()), int(table.prompt_tokens[mask].sum())) for mask in each
        ],
        "held_at_router": int((table.wait_router_ns[served] > 0).sum()),
        "retries": int(table.retries[served].sum()),
    }


def _ttft(table: RequestTable, mask: np.ndarray) -> float | None:
    return ratio(int(exact_sum(per_request_ns(table, "ttft", mask))), int(mask.sum()) * NS_PER_S)
