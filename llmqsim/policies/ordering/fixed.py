"""What orderings with fixed keys share: one formula for a request and for all of them in arrays, and ageing."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from llmqsim.policies import rules
from llmqsim.policies.protocol import FixedKeys, Ordering, OrderingTable, RequestView


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
        size = self.size(of)
        if not isinstance(size, np.ndarray):
            return rules.aged_ns(size, self.per_unit_ns)
        if not self.ageing:
            return np.minimum(size, rules.FAR_NS)
        return np.minimum(size * self.per_unit_ns, float(rules.FAR_NS)).astype(np.int64)

    @property
    def per_unit_ns(self) -> float:
        """Of waiting that makes up for one unit of size; 0: nobody ages."""
        return 1e9 / (self.ageing * self.unit()) if self.ageing else 0.0


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """yes where the condition holds, else no; for numbers or arrays."""
    return np.where(condition, yes, no) if isinstance(condition, np.ndarray) else (yes if condition else no)
