"""What a claim is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from llmqsim.scenario.load import Scenario, Variants, load

Size = TypeVar("Size")


@dataclass(frozen=True)
class Setting:
    """Where the scenarios of the claims are, how large their runs may be, and the seed.

    announce : called with a sentence now and then, while a long claim is at work.
    """

    folder: Path
    reduced: bool = False
    seed: int = 0
    announce: Callable[[str], None] = lambda text: None

    def load(self, name: str, variant: Variants = None, sets: Mapping[str, Any] | None = None) -> Scenario:
        """The scenario `name`.yaml of the folder. sets : values by dotted key. Raises UserError."""
        return load(self.folder / f"{name}.yaml", variant=variant, sets=sets or {})

    def seeds(self, number: int) -> range:
        """So many seeds, from the one that was asked for."""
        return range(self.seed, self.seed + number)

    def size(self, full: Size, reduced: Size) -> Size:
        """What to take: `reduced` in CI, where minutes count, else `full`."""
        return reduced if self.reduced else full


@dataclass(frozen=True)
class Figure:
    """One check of a claim.

    check : in words, the key of its band. simulated : one value, or one a seed, each of which must lie in the band.
    published : None where nobody published one. assumption : what the simulated figure rests on. reason : why it lies
    outside its band, told only where it does.
    """

    check: str
    simulated: float | tuple[float, ...]
    published: float | None
    assumption: str
    reason: str | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """One value a seed."""
        return self.simulated if isinstance(self.simulated, tuple) else (self.simulated,)

    @property
    def mean(self) -> float:
        """Over seeds."""
        return sum(self.values) / len(self.values)
