"""The rows of one configuration as arrays: what a fit reads and a score compares with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from llmqsim.cost.families import KEY, Family

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Rows:
    """Rows of one configuration. columns : float64 arrays. seconds : measured. position : place in the source frame."""

    family: Family
    config: dict[str, object]
    columns: dict[str, np.ndarray]
    seconds: np.ndarray
    position: np.ndarray

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def dtype(self) -> str:
        """The configuration's dtype label."""
        return str(self.config["dtype"])

    def part(self, take: np.ndarray) -> Rows:
        """The rows where `take` (bools or indices) points."""
        columns = {name: values[take] for name, values in self.columns.items()}
        return Rows(self.family, self.config, columns, self.seconds[take], self.position[take])


def config_columns(family: Family) -> list[str]:
    """Columns that tell configurations apart."""
    return [*KEY, *family.key, "kernel"]


def split(family: Family, frame: pd.DataFrame) -> Iterator[Rows]:
    """The rows of each configuration, sorted by configuration; rows inside keep their order."""
    names = config_columns(family)
    groups = frame.groupby(names, observed=True, sort=True, dropna=False)
    seconds = (
        frame["latency_us"].to_numpy(dtype=np.float64) * 1e-6 if "latency_us" in frame else np.full(len(frame), np.nan)
    )
    arrays = {name: frame[name].to_numpy() for name in family.shape}
    for key, indices in groups.indices.items():
        config = {name: _plain(value) for name, value in zip(names, key, strict=True)}
        columns = family.columns(config, {name: values[indices] for name, values in arrays.items()})
        yield Rows(family, config, columns, seconds[indices], indices)


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def blocks_of(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """(features of each distinct block, sorted; which of them each row belongs to)."""
    features = rows.family.features(rows.columns)
    keys = np.round(features * 4096).astype(np.int64)
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return features[first], inverse.reshape(-1)
