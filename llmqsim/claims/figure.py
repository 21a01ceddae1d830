"""What a claim is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from llmqsim.metrics.stats import t_interval
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

    check : in words, the key of its band. simulated : one value, or one a case, each of which must lie in the band.
    published : None where nobody published one. assumption : what the simulated figure rests on. reason : why it lies
    outside its band, told only where it does. interval : 95 % of its mean over seeds; where there is one, it is what must
    lie in the band.
    """

    check: str
    simulated: float | tuple[float, ...]
    published: float | None
    assumption: str
    reason: str | None = None
    interval: tuple[float, float] | None = None

    @classmethod
    def over_seeds(
        cls, check: str, values: Sequence[float], published: float | None, assumption: str, reason: str | None = None
    ) -> Figure:
        """The mean of one value a seed, with Student's interval; one seed has none."""
        found = t_interval(values)
        interval = None if found.low is None or found.high is None else (found.low, found.high)
        return cls(check, found.mean, published, assumption, reason, interval)

    @property
    def values(self) -> tuple[float, ...]:
        """One value a case."""
        return self.simulated if isinstance(self.simulated, tuple) else (self.simulated,)

    @property
    def mean(self) -> float:
        """Over seeds, or cases."""
        return sum(self.values) / len(self.values)
