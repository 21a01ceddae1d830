"""Keys of an ordering that are fixed when a request joins, for all requests at once, and what they may be made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

ORDERING_COLUMNS = (
    "arrival_ns",
    "prompt_tokens",
    "max_tokens",
    "class_id",
    "tenant_id",
    "session_id",
    "priority",
    "deadline_ns",
    "due_at_end",
    "predicted_tokens",
)
"""columns of the request table that an ordering may see, as far as they exist"""


class OrderingTable:
    """All requests of a run as an ordering may see them: `table.prompt_tokens` etc., int64[rows], read-only.

    There is no `output_tokens` here. `arrival_ns` is -1 where the run itself decides when a request is sent (closed
    loops, caps in the client), so that keys may count on it through `FixedKeys.slope` alone.
    """

    def __init__(self, columns: Mapping[str, np.ndarray]):
        self._columns = {}
        for name in ORDERING_COLUMNS:
            if name in columns:
                self._columns[name] = columns[name].view()
                self._columns[name].flags.writeable = False

    def __len__(self) -> int:
        return len(self._columns["prompt_tokens"])

    def __getattr__(self, name: str) -> np.ndarray:
        if not name.startswith("_") and name in self._columns:
            return self._columns[name]
        raise AttributeError(f"an ordering table has no column {name!r}")


@dataclass(frozen=True)
class FixedKeys:
    """Keys that are fixed when a request joins: (level, base_ns + slope * arrival_ns), ties by row.

    level, base_ns : int64[rows]; base_ns between -2^60 and 2^60. slope : -1, 0 or 1. The key of a request that is sent
    to the back of the queue at `now_ns` is (level, base_ns + now_ns).
    """

    level: np.ndarray
    base_ns: np.ndarray
    slope: int
