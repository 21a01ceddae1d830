"""What each request is promised, for policies that look at it: the targets of its class, and when it is due."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmqsim.requests import INDEX, UNSET, RequestTable, Targets
from llmqsim.units import NS_PER_S


def fill(table: RequestTable, shared: dict[str, Any], own: dict[str, dict[str, Any]]) -> None:
    """Write `targets` and `deadline_ns`.

    shared : the slo of all traffic, own : of the classes that have their own; ttft, tpot, e2e in seconds or None.
    """
    table.targets = tuple(_targets(own.get(name, shared)) for name in table.classes)
    due = [_first(t.ttft_ns, t.e2e_ns) for t in table.targets]
    table.data[INDEX["deadline_ns"]] = np.array(due, dtype=np.int64)[table.class_id]


def _targets(slo: dict[str, Any]) -> Targets:
    return Targets(*(None if slo.get(k) is None else round(slo[k] * NS_PER_S) for k in ("ttft", "tpot", "e2e")))


def _first(*values: int | None) -> int:
    return next((value for value in values if value is not None), UNSET)
