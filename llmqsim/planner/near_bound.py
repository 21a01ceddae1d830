"""A target just under what any number of replicas reaches: how near, what replicas still bring, and what would help.

However many replicas there are, a request is answered no sooner than alone on one. So the share that keeps its
targets alone is the bound, which attainment comes up to ever more slowly: each further tenth of a point may take as
many replicas as all before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from llmqsim.engine.deployment import Deployment
from llmqsim.metrics.slo import Objective
from llmqsim.planner.bounds import Bounds
from llmqsim.planner.limits import alone_shares, alone_times, asked_rows, served_rows
from llmqsim.requests import RequestTable
from llmqsim.units import format_seconds

NEAR = 0.01
"""a point: a target that is no further below the bound is near it"""
MOST_TIMES = 4
"""of the replicas by means, that are tried where the target is near the bound and nobody asked for more"""
EASED = 0.02
"""how far above the target the bound would be with the limit that is named"""


@dataclass(frozen=True)
class Bound:
    """The bound of the objective that is nearest to its own. asked, share : of requests, asked for and kept alone.

    target : the limit that most requests miss alone ("ttft_s"); limit_s : as it is; eased_s : with which the bound
    would be EASED above what is asked for, or 1.
    """

    objective: str
    asked: float
    share: float
    target: str
    limit_s: float
    eased_s: float

    @property
    def near(self) -> bool:
        """Is there hardly any room between the target and the bound?"""
        return self.share - self.asked <= NEAR

    @property
    def _kept(self) -> str:
        return "all targets" if self.objective == "attainment" else self.objective

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the distance in points."""
        return {**asdict(self), "points": 100 * (self.share - self.asked)}

    def sentence(self, seen: Mapping[int, float]) -> str:
        """What a reader should know. seen : replicas -> attainment, of those that were tried."""
        name = self.target.removesuffix("_s").upper()
        tried = ", ".join(f"{n:,}: {100 * share:.2f} %" for n, share in sorted(seen.items()))
        eased = f"{name} ≤ {format_seconds(self.eased_s)} instead of {format_seconds(self.limit_s)}"
        return (
            f"the target is within {100 * (self.share - self.asked):.2f} points of what any number of replicas reaches: "
            f"alone on a replica {100 * self.share:.2f} % of requests keep {self._kept}, {100 * self.asked:g} % are "
            f"asked for{f'; replicas and attainment: {tried}' if tried else ''}. More replicas bring little; {eased}, a "
            f"share of {100 * max(self.asked - EASED, 0):g} %, or a lever that makes a lone request faster (llmqsim "
            f"advise) do more"
        )


def bound(
    bounds: Bounds, deployment: Deployment, table: RequestTable, objectives: Sequence[Objective]
) -> Bound | None:
    """The nearest of the objectives' bounds that lie above what is asked; None where nobody is late alone."""
    times, served = alone_times(bounds, deployment, table), served_rows(deployment, table)
    found: Bound | None = None
    for one in objectives:
        rows = asked_rows(one, table)
        if not rows.any():
            continue
        shares, share = alone_shares(one, rows, served, times)
        if share >= 1 or share < one.share:
            continue
        if found is None or share - one.share < found.share - found.asked:
            target = min(shares, key=lambda t: shares[t])
            wanted = min(one.share + EASED, 1.0)
            both = rows & served
            eased = float(np.quantile(times[target][both], min(wanted * rows.sum() / both.sum(), 1.0)))
            limit = one.limits_s[target]
            found = Bound(one.label, one.share, share, target, limit, max(eased, limit))
    return found
