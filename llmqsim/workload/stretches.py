"""A workload drawn in stretches: the rows that `build` would draw at once, number by number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from llmqsim.requests import RequestTable
from llmqsim.rng import stream
from llmqsim.workload.arrivals import to_ns
from llmqsim.workload.build import limit
from llmqsim.workload.gaps import RENEWALS, gap_shape, unit_gaps
from llmqsim.workload.rows import Rows, draw_lengths

KNOWN = {"requests", "arrivals", "lengths", "max_tokens"}
ARRIVALS = {"process", "rate", "cv", "burstiness"}


def why_not(given: dict[str, Any]) -> str | None:
    """What of a `workload` (keys that are not None) can't be drawn in stretches; None where all can."""
    if (strange := sorted(set(given) - KNOWN)) or "requests" not in given:
        return f"workload.{strange[0]}" if strange else "a workload without a number of requests"
    arrivals = {key: value for key, value in (given.get("arrivals") or {}).items() if value is not None}
    if arrivals.get("process") not in RENEWALS or arrivals.get("rate") is None:
        return f"arrivals {arrivals.get('process')}"
    strange = sorted(key for key in set(arrivals) - ARRIVALS if arrivals[key])
    return f"workload.arrivals.{strange[0]}" if strange else None


class Stretches:
    """Rows of one open stream, drawn in order.

    given : the scenario's `workload` as plain values in SI units, without what is None. notes : what was said of the
    rows so far.
    """

    def __init__(self, given: dict[str, Any], seed: int, replication: int, folder: Path, max_model_len: int | None):
        self._given, self._folder, self._longest = given, folder, max_model_len
        arrivals = given["arrivals"]
        self._gaps, self._rate = unit_gaps(arrivals["process"], gap_shape(arrivals)), arrivals["rate"]
        names = ("arrivals", "prompt_lengths", "output_lengths")
        self._arrivals, self._prompts, self._outputs = (stream(seed, replication, name) for name in names)
        self._sum: float | None = None
        self.drawn = 0
        self.notes: list[str] = []

    def draw(self, rows: int) -> RequestTable:
        """The next rows."""
        gaps = self._gaps(self._arrivals.random(rows))
        if self._sum is not None:  # the sum goes on as one long sum would
            gaps = np.concatenate([[self._sum], gaps])
        sums = np.cumsum(gaps)[-rows:]
        self._sum = float(sums[-1])
        u_prompt, u_output = self._prompts.random(rows), self._outputs.random(rows)
        prompt, output, _ = draw_lengths(self._given.get("lengths"), u_prompt, u_output, self._folder, self.notes)
        made = Rows(to_ns(sums / self._rate), prompt, output, self._rate, "")
        output, longest = limit(made, self._given.get("max_tokens", "model"), self._longest, self.notes)
        self.drawn += rows
        return RequestTable.from_columns(
            arrival_ns=made.arrival_ns, prompt_tokens=prompt, output_tokens=output, max_tokens=longest
        )
