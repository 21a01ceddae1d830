"""Keys under `slo`: what users are promised, for all of the traffic or for one class of it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from llmqsim.scenario import rules
from llmqsim.scenario.kinds import Latency, Spec
from llmqsim.scenario.slo_text import SloError, parse_slo


def percentile(what: str, percent: int) -> Any:
    """A target for one percentile of a latency."""
    share = "half of the arrivals" if percent == 50 else f"{percent} % of the arrivals"
    return Annotated[Latency | None, Field(None, description=f"{share.capitalize()} at least: {what} at most this, seconds.")]


class Slo(Spec):
    """What users are promised: at least one latency. A request meets it when `ttft`, `tpot` and `e2e`, those given, all hold.

    A bare number is seconds; from 10 on it needs a unit, since benchmarks write bare milliseconds. Text is short for it,
    in the spelling of the tool you use: `slo: "ttft:500 tpot:50"` (docs/slo.md).
    """

    ttft: Latency | None = Field(None, description="Time to first token, seconds.")
    tpot: Annotated[float, rules.seconds(example="50 ms")] | None = Field(
        None, description="Time per output token after the first, seconds."
    )
    e2e: Latency | None = Field(None, description="Time to the last token, seconds.")
    attainment: Annotated[
        float, rules.number(above=0, below=1, hint="write a share such as 0.95; no finite run can show 100 %")
    ] = Field(0.95, description="Share of arrivals that must meet every target.")
    counted_from: Annotated[str, rules.choice("due", "sent")] = Field(
        "due",
        description="When the clock of TTFT and E2E targets starts: when a request was due, or when its client sent it, "
        "which is later where `workload.clients.max_in_flight` held it back.",
    )
    ttft_p50: percentile("TTFT", 50) = None
    ttft_p90: percentile("TTFT", 90) = None
    ttft_p95: percentile("TTFT", 95) = None
    ttft_p99: percentile("TTFT", 99) = None
    tpot_p50: percentile("TPOT", 50) = None
    tpot_p90: percentile("TPOT", 90) = None
    tpot_p95: percentile("TPOT", 95) = None
    tpot_p99: percentile("TPOT", 99) = None
    e2e_p50: percentile("E2E", 50) = None
    e2e_p90: percentile("E2E", 90) = None
    e2e_p95: percentile("E2E", 95) = None
    e2e_p99: percentile("E2E", 99) = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return parse_slo(value)
        except SloError as error:
            raise rules.wrong(error.problem, error.hint) from None


SLO_KEYS = tuple(name for name in Slo.model_fields if name not in ("attainment", "counted_from"))
"""every latency target that an SLO may hold"""
