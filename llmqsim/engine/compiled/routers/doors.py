"""What each admission policy is made of (door.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llmqsim.engine.compiled.world import router as at
from llmqsim.policies import admission
from llmqsim.requests import Reason


@dataclass(frozen=True)
class Door:
    """Who may enter. most : requests; for a bucket: does it count tokens? limits : floats that the rule needs."""

    kind: int = at.OPEN
    most: int = 0
    window_ns: int = 0
    limits: tuple[float, ...] = ()
    reads_reports: bool = False


DOORS: dict[type, Callable[[Any], Door]] = {
    admission.All: lambda policy: Door(),
    admission.TokenBucket: lambda policy: Door(
        at.BUCKET,
        most=policy.of == "tokens",
        limits=(float(policy.rate), float(policy.burst), *policy.start()[:1]),
    ),
    admission.QueueCap: lambda policy: Door(
        at.CAP_WAITING if policy.of == "waiting" else at.CAP_IN_FLIGHT, policy.most, reads_reports=True
    ),
    admission.Deadline: lambda policy: Door(
        at.IN_TIME,
        window_ns=policy.window_ns,
        limits=(policy.window_s * 1e9, float(policy.slack)),
        reads_reports=True,
    ),
}
"""policy -> its form"""


def reason(policy: Any) -> int:
    """Why it refuses."""
    return int(Reason[policy.reason.upper()])
