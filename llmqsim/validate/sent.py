"""What a client sent, from a request table: arrivals, lengths, tenant. Latencies in the table are never looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmqsim.errors import DataError
from llmqsim.validate.document import read_table

NEEDED = ("arrival_s", "prompt_tokens", "output_tokens")
WHAT = "a table of requests"


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


def read_sent(path: Path) -> Sent:
    """The requests that a table says were sent. Raises DataError."""
    frame = read_table(path, WHAT)
    if absent := [name for name in NEEDED if name not in frame.columns]:
        raise DataError(f"{path}: columns missing: {', '.join(absent)}; {WHAT} was expected")
    frame = frame.sort_values("arrival_s", kind="stable")
    numbers = {name: frame[name].to_numpy(dtype=np.float64) for name in NEEDED}
    bad = ~np.all([np.isfinite(values) for values in numbers.values()], axis=0)
    if bad.any():
        raise DataError(f"{path}: row {int(np.flatnonzero(bad)[0])}: a time or length is missing")
    tenant = frame["tenant"].astype(str).to_numpy() if "tenant" in frame.columns else None
    return Sent(
        numbers["arrival_s"] - numbers["arrival_s"].min(),
        np.maximum(1, numbers["prompt_tokens"].round().astype(np.int64)),
        np.maximum(1, numbers["output_tokens"].round().astype(np.int64)),
        tenant,
    )
