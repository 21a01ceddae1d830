"""What a client sent, from a request table: arrivals, lengths, tenant. Latencies in the table are never looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from llmqsim.errors import DataError
from llmqsim.stamps import AUTO, Clock, unit
from llmqsim.validate.document import read_table

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("arrival_s", "prompt_tokens", "output_tokens")
WHAT = "a table of requests"
TIME_UNIT = "workload.time_unit"
"""key of a case that states the unit of its table's arrivals"""


@dataclass(frozen=True)
class Sent:
    """One row a request, in order of arrival: float64[n] s, int64[n], int64[n], text[n] or None."""

    arrival_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    tenant: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    def csv(self) -> str:
        """As a trace file of the scenario language."""
        import pandas as pd

        columns = {name: getattr(self, name) for name in NEEDED}
        if self.tenant is not None:
            columns["class"] = self.tenant
        return pd.DataFrame(columns).to_csv(index=False)


def read_sent(path: Path, time_unit: str = AUTO) -> Sent:
    """The requests that a table says were sent. time_unit : of arrival_s, as the case states it. Raises DataError."""
    frame = read_table(path, WHAT, NEEDED)
    numbers = {name: _numbers(frame, name, path) for name in NEEDED}
    order = np.argsort(numbers["arrival_s"], kind="stable")
    frame, numbers = frame.iloc[order], {name: values[order] for name, values in numbers.items()}
    clock = Clock(unit(time_unit, TIME_UNIT), "arrival_s", str(path), TIME_UNIT, settable=False)
    numbers["arrival_s"] = clock.seconds(numbers["arrival_s"])
    tenant = frame["tenant"].astype(str).to_numpy() if "tenant" in frame.columns else None
    return Sent(
        numbers["arrival_s"] - numbers["arrival_s"].min(),
        np.maximum(1, numbers["prompt_tokens"].round().astype(np.int64)),
        np.maximum(1, numbers["output_tokens"].round().astype(np.int64)),
        tenant,
    )


def _numbers(frame: pd.DataFrame, name: str, path: Path) -> np.ndarray:
    """A column as float64[n]. Raises DataError naming the first row that holds no number, and the value."""
    import pandas as pd

    values = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64)
    if (bad := ~np.isfinite(values)).any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(f"{path}: row {row}: {name}: must be a number (got {frame[name].iloc[row]!r})")
    if not len(values):
        raise DataError(f"{path}: has no rows; {WHAT} was expected")
    return values
