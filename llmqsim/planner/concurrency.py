"""How many requests run at once in one replica: what the pool guarantees, and what a run held."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from llmqsim.result import Result


@dataclass(frozen=True)
class Concurrency:
    """Requests of one replica at once.

    guaranteed : of max_model_len tokens, by the KV pool alone, a floor and no forecast; None without a pool or a limit.
    sustained : mean while busy. peak : most at any time.
    """

    guaranteed: float | None
    sustained: float | None
    peak: int | None

    @classmethod
    def of(cls, result: Result) -> Concurrency:
        """Of a run."""
        kv = result.summary()["kv"]
        held = kv["sustained_concurrency"]
        return cls(kv["guaranteed_concurrency"], held["mean"], held["peak"])

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)
