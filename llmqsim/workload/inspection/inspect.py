"""Everything that `llmqsim workload inspect` says of a trace, in one frozen answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from llmqsim.workload.inspection.arrivals import Arrivals, Drift, of_arrivals, of_drift
from llmqsim.workload.inspection.demand import Demand, Waits, of_demand, of_waits
from llmqsim.workload.inspection.lengths import Band, Lengths, bands, dependence, of_lengths
from llmqsim.workload.inspection.sharing import Prefixes, Sessions, of_prefixes, of_sessions
from llmqsim.workload.trace import Trace


@dataclass(frozen=True)
class Inspection:
    """Parts are None where the trace does not say: no times, no block ids, no sessions."""

    source: str
    rows: int
    notes: tuple[str, ...]
    doubt: str
    prompt: Lengths
    output: Lengths
    rank_correlation: float
    output_given_prompt: tuple[Band, ...]
    arrivals: Arrivals | None
    drift: Drift
    prefixes: Prefixes | None
    sessions: Sessions | None
    demand: Demand
    waits: Waits | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON: what is not known is null."""
        return plain(asdict(self))


def inspect(trace: Trace, caches: Sequence[int] = ()) -> Inspection:
    """Look at a trace. caches : sizes of prefix caches to try, tokens."""
    prompt, output = trace.prompt_tokens, trace.output_tokens
    return Inspection(
        source=trace.source,
        rows=len(trace),
        notes=trace.notes,
        doubt=trace.doubt,
        prompt=of_lengths(prompt),
        output=of_lengths(output),
        rank_correlation=dependence(prompt, output),
        output_given_prompt=bands(prompt, output),
        arrivals=of_arrivals(trace.arrival_s, trace.start_s),
        drift=of_drift(trace),
        prefixes=of_prefixes(trace, caches),
        sessions=of_sessions(trace),
        demand=of_demand(prompt, output),
        waits=of_waits(trace.arrival_s, prompt, output),
    )


def plain(value: Any) -> Any:
    """For JSON: tuples as lists, numbers of numpy as Python's, what is not finite as null."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
