"""What a run costs: GPUs times their price, and what that comes to for tokens and for requests that kept the SLO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llmqsim.hardware.prices import price
from llmqsim.report.show import NOTHING, count, figures

SECONDS = 3600


def gpus(summary: dict[str, Any]) -> dict[str, int]:
    """How many GPUs of each preset a run has; empty where the scenario names none."""
    scenario, found = summary["scenario"], {}
    parts = list((scenario.get("pools") or {}).values()) or [scenario]
    for part in parts:
        name = part.get("gpu") or scenario.get("gpu")
        if isinstance(name, dict):
            name = name.get("name")
        if name is None:
            return {}
        each = (part.get("tensor_parallel_size") or 1) * (part.get("pipeline_parallel_size") or 1)
        found[name] = found.get(name, 0) + (part.get("replicas") or 1) * each
    return found


def dollars(summary: dict[str, Any], own: Mapping[str, float]) -> float | None:
    """US dollars an hour; None where a GPU has no price."""
    total = 0.0
    for name, number in gpus(summary).items():
        one = price(name, own)
        if one is None:
            return None
        total += number * one.usd_per_gpu_hour
    return total or None


def tile(summary: dict[str, Any], own: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """The key figure; none without a price."""
    hourly, used = dollars(summary, own), gpus(summary)
    if hourly is None:
        return []
    return [("cost an hour", f"${hourly:,.2f}", ", ".join(f"{n:,} × {name}" for name, n in used.items()))]


def rows(summary: dict[str, Any], own: Mapping[str, float]) -> list[tuple[str, str]]:
    """Labels and what they say."""
    used = gpus(summary)
    if not used:
        return [("GPUs", "the scenario names none, so there is no cost")]
    said = [("GPUs", ", ".join(f"{n:,} × {name}" for name, n in used.items()))]
    hourly = dollars(summary, own)
    if hourly is None:
        without = [name for name in used if price(name, own) is None]
        return [*said, ("price", f"none is known for {', '.join(without)}; give it with --price {without[0]}=DOLLARS")]
    rates, good = summary["throughput"], summary["goodput_per_s"]
    sources = list(dict.fromkeys(one.source for name in used if (one := price(name, own)) is not None))
    said.append(("an hour", f"${hourly:,.2f} for {count(sum(used.values()), 'GPU')} ({'; '.join(sources)})"))
    said.append(("a million output tokens", _each(hourly, rates["output_tokens_per_s"], 1e6)))
    said.append(("1,000 requests", _each(hourly, rates["requests_per_s"], 1e3)))
    if good is not None:
        said.append(("1,000 requests that kept the SLO", _each(hourly, good, 1e3)))
    return [
        *said,
        ("counted over", "the time from the first arrival to the last answer of this run, drain and warm-up as run"),
    ]


def _each(hourly: float, per_s: float | None, number: float) -> str:
    return f"${figures(hourly / SECONDS / per_s * number)}" if per_s else NOTHING
