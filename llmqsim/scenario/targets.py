"""Keys under `slo`: what users are promised, for all of the traffic or for one class of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from llmqsim.scenario import rules
from llmqsim.scenario.kinds import Latency, Spec


class Slo(Spec):
    """What users are promised: at least one latency. A request meets it when every given target holds.

    A bare number is seconds; from 10 on it needs a unit, since benchmarks write bare milliseconds.
    """

    ttft: Latency | None = Field(None, description="Time to first token, seconds.")
    tpot: Annotated[float, rules.seconds(example="50 ms")] | None = Field(
        None, description="Time per output token after the first, seconds."
    )
    e2e: Latency | None = Field(None, description="Time to the last token, seconds.")
    attainment: Annotated[
        float, rules.number(above=0, below=1, hint="write a share such as 0.95; no finite run can show 100 %")
    ] = Field(0.95, description="Share of arrivals that must meet every target.")
