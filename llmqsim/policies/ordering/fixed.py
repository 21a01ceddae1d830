"""What orderings with fixed keys share: one formula for a request and for all of them in arrays, and ageing."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from llmqsim.policies.protocol import FixedKeys, Ordering, OrderingTable, RequestView

FAR_NS = 1 << 59
"""stands for "last of all": no size or deadline is larger; keys stay below 2^60"""


class Fixed(Ordering):
    """Base: the key is (level, base_ns + slope x arrival).

    `level` and `base_ns` get a request or an OrderingTable and answer with an int or int64[rows]: the same formula.
    """

    slope = 0

    def level(self, of: Any) -> Any:
        """Smaller levels go first."""
        return 0

    @abstractmethod
    def base_ns(self, of: Any) -> Any:
        """Within a level."""

    def key(self, request: RequestView) -> tuple[int, int]:
        """(level, base + slope x arrival)."""
        return self.level(request), self.base_ns(request) + self.slope * request.arrival_ns

    def late_key(self, request: RequestView, now_ns: int) -> tuple[int, int]:
        """(level, base + now)."""
        return self.level(request), self.base_ns(request) + now_ns

    def fixed_keys(self, table: OrderingTable) -> FixedKeys | None:
        """The same for all."""
        if self.preempts:
            return None
        rows = len(table)
        level, base = (np.broadcast_to(part, rows) for part in (self.level(table), self.base_ns(table)))
        return FixedKeys(level.astype(np.int64), base.astype(np.int64), self.slope)


class Sized(Fixed):
    """Base of orderings by size, smallest first, with linear ageing.

    `ageing` : units of size (tokens, or seconds of work) that a second of waiting takes off; 0: none. The key is then
    size / ageing + arrival, which is fixed, though everybody ages: they do so alike.
    """

    ageing: float

    @property
    def slope(self) -> int:
        """With ageing, those who came first are ahead."""
        return 1 if self.ageing else 0

    @abstractmethod
    def size(self, of: Any) -> Any:
        """Size of a request (int), or of all of a table (int64[rows])."""

    def unit(self) -> int:
        """Size in one unit of `ageing`."""
        return 1

    def base_ns(self, of: Any) -> Any:
        """The size itself, or the waiting that makes up for it, ns."""
        return aged_ns(self.size(of), self.ageing, self.unit())


def aged_ns(size: Any, ageing: float, unit: int = 1) -> Any:
    """size / (ageing x unit) in ns; size where nobody ages; an int, or int64[n] for an array."""
    if not ageing:
        return at_most(size, FAR_NS)
    ns = at_most(size * (1e9 / (ageing * unit)), float(FAR_NS))
    return ns.astype(np.int64) if isinstance(ns, np.ndarray) else int(ns)


def at_most(values: Any, limit: Any) -> Any:
    """min, for a number or an array."""
    return np.minimum(values, limit) if isinstance(values, np.ndarray) else min(values, limit)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """yes where the condition holds, else no; for numbers or arrays."""
    return np.where(condition, yes, no) if isinstance(condition, np.ndarray) else (yes if condition else no)
