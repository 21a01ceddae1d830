"""Has a run shown spare capacity? What tells a busy system from one that is asked for a little more than it gives.

A backlog at load r > 1, seen as a reflected Brownian motion with drift m = 1 - 1/r and variance d per arrival, is empty
for the last time after n arrivals or more with probability 2 ((1 + x) Q(sqrt x) - sqrt x phi(sqrt x)), x = m^2 n / d (the
law of the time at which a Brownian motion with drift is lowest; Q, phi: tail and density of the normal law), and in all
its time it wastes capacity for k requests or more with probability exp(-2 m k / d) (the law of that lowest value; Harrison
1985). So a run in which requests were taken up at once until late, or very many were, is no overload.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

SEEN_LOAD = 1.05
"""the least overload that a run called stable would have shown"""
DRIFT = 1 - 1 / SEEN_LOAD
MOST_DOUBT = 0.05
"""chance of an overloaded run to look as calm as one that is called stable"""
AT_ONCE_PER_WASTED = 1.25
"""requests that are taken up at once for each that could have been served besides: near load 1 one of one server (who finds
it idle); sqrt(c) times this of c servers at one queue, which are hardly ever far from full (Halfin and Whitt 1981)"""
NO_WAIT = 0.02
"""a wait below this part of the time in service is none"""


@dataclass(frozen=True)
class Spare:
    """Evidence of spare capacity.

    arrivals : so many until the last that was taken up at once. at_once : taken up at once, after the first answers.
    dispersion : variance of (arrivals - departures) per arrival. servers : most requests in service at once. queues :
    replicas, each of which may waste its own. burstiness : squared coefficient of variation of the gaps: who finds an idle
    server ends an idle time, which lasts (1 + burstiness) / 2 mean gaps (a residual one), and is wasted as long. lost : who
    gave up for the load: they would have taken of it, and a queue that they leave is empty for that reason, too.
    """

    arrivals: int
    at_once: int
    dispersion: float
    servers: int
    queues: int
    burstiness: float = 1.0
    lost: int = 0

    @property
    def doubt(self) -> float:
        """Chance that a system at SEEN_LOAD shows as much spare capacity: the lesser of the two laws."""
        x = DRIFT**2 * self.arrivals / self.dispersion
        root = math.sqrt(x)
        tail, density = 0.5 * math.erfc(root / math.sqrt(2)), math.exp(-x / 2) / math.sqrt(2 * math.pi)
        empty_late = 2 * ((1 + x) * tail - root * density)
        wasted = math.exp(-2 * DRIFT * max(self.wasted - self.lost, 0.0) / self.dispersion)
        return min(1.0, wasted if self.lost else min(empty_late, wasted))

    @property
    def wasted(self) -> float:
        """About how many more requests could have been served while the servers were not full."""
        each = (1 + max(1.0, self.burstiness)) / 2 / (AT_ONCE_PER_WASTED * math.sqrt(self.servers * self.queues))
        return self.at_once * each

    @property
    def enough(self) -> bool:
        """Is it more than SEEN_LOAD would have shown?"""
        return self.doubt <= MOST_DOUBT


def spread(values: np.ndarray) -> float:
    """Squared coefficient of variation."""
    mean = float(values.mean()) if len(values) else 0.0
    return float(values.var()) / mean**2 if mean else 0.0


def at_once(due_ns: np.ndarray, scheduled_ns: np.ndarray, step_ns: np.ndarray, service_ns: int) -> np.ndarray:
    """Mask of the requests that waited for no more than the next step, bool[n].

    step_ns : what each waited for a step; service_ns : a usual time in service. What all wait (the way to the server)
    is no wait.
    """
    kept_ns = scheduled_ns - due_ns - step_ns
    return kept_ns - kept_ns.min() <= NO_WAIT * service_ns if len(kept_ns) else np.zeros(0, dtype=bool)
