"""Memory that a server's log states, in place of what is worked out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MeasuredMemory:
    """Bytes on each GPU; None: worked out.

    activation and other replace together what an engine keeps for running; graphs what CUDA graphs take of the pool.
    """

    weights: int | None = None
    activation: int | None = None
    other: int | None = None
    graphs: int | None = None

    @property
    def replaces_reserve(self) -> bool:
        """Is what the engine keeps for running stated?"""
        return self.activation is not None or self.other is not None
