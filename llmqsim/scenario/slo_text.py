"""SLOs as people write them, to the keys of a scenario's `slo`: one internal form, whatever tool the text comes from.

    ttft:500 tpot:50 e2el:2000                vLLM's --goodput, milliseconds
    ttft p99 < 500 ms, tpot <= 50 ms, 95 %    with units
    dynamo ttft:200 itl:20                    a tool's name first: its names, its unit

docs/slo.md has the table of who calls what how.
"""

from __future__ import annotations

import re

from llmqsim.errors import UserError, did_you_mean
from llmqsim.units import SECONDS, QuantityError, parse_seconds

PERCENTILES = (50, 90, 95, 99)
TARGETS = ("ttft", "tpot", "e2e")
MS, S = "ms", "s"

NAMES: dict[str, str] = {
    "ttft": "ttft", "time_to_first_token": "ttft", "first_token": "ttft",
    "tpot": "tpot", "time_per_output_token": "tpot", "itl": "tpot", "inter_token_latency": "tpot",
    "e2e": "e2e", "e2el": "e2e", "latency": "e2e", "request_latency": "e2e", "end_to_end": "e2e", "e2e_latency": "e2e",
}  # fmt: skip
"""what tools call a latency of a request -> ours. itl: only of tools that mean a request's mean by it, see ELSEWHERE"""
TOOLS: dict[str, dict[str, str]] = {
    "vllm": dict.fromkeys(("ttft", "tpot", "e2el"), MS),
    "aiperf": dict.fromkeys(("time_to_first_token", "inter_token_latency", "request_latency"), MS),
    "guidellm": {
        "time_to_first_token_ms": MS, "inter_token_latency_ms": MS, "time_to_first_token": MS,
        "inter_token_latency": MS, "request_latency": S,
    },
    "inference-perf": dict.fromkeys(
        ("time_to_first_token", "time_per_output_token", "request_latency", "ttft", "tpot"), S
    ),
    "dynamo": dict.fromkeys(("ttft", "itl"), MS),
}  # fmt: skip
"""a tool's names and the unit that a bare number has there; from memory"""
GAP = "its ITL is the gap between chunks, of which a request has many, and no target here: give tpot"
ELSEWHERE = {
    ("guidellm", "time_per_output_token"): "its TPOT counts the first token, too (our NTPOT): no target here",
    ("guidellm", "tpot"): "its TPOT counts the first token, too (our NTPOT): no target here",
    ("vllm", "itl"): GAP,
    ("vllm", "inter_token_latency"): GAP,
    ("inference-perf", "inter_token_latency"): GAP.replace("give tpot", "give time_per_output_token"),
}
"""names that would be read wrong"""
AMBIGUOUS = ("itl", "inter_token_latency")
"""names that are a request's mean in some tools and each gap between chunks in others"""
NOT_ONE_THING = "vLLM's is each gap between chunks, Dynamo's, AIPerf's and GuideLLM's a request's mean"
LEAST_MS, MOST_S = 1.0, 60.0
"""a bare TTFT or TPOT below the one, in milliseconds, or above the other, in seconds, was meant in another unit"""

_ITEM = re.compile(
    r"(?:(?P<lead>p\d{1,2}(?:\.\d+)?|mean|avg|median|max)[\s_]+)?"
    r"(?P<name>[A-Za-z][A-Za-z0-9_]*?)"
    r"(?:_(?P<suffix>ms|s|seconds))?"
    r"(?:[\s_]+(?P<percentile>p\d{1,2}(?:\.\d+)?|mean|avg|median|max))?"
    r"\s*(?P<sign>:|=|<=|≤|<|=<)\s*"
    r"(?P<value>\d+(?:\.\d+)?)"
    r"(?:\s*(?P<unit>(?!(?:at|and|median|mean|avg|max)\b)[a-zA-Zµμ]+(?=[\s,;]|$)(?!\s*[:=<≤])(?!\s+p\d+\s*[:=<≤])))?"
)
_SHARE = re.compile(r"(?:at\s+)?(?:attainment\s*[:=]?\s*)?(?P<value>\d+(?:\.\d+)?)\s*(?P<percent>%)?")


class SloError(UserError, ValueError):
    """A text that is no SLO. `problem` says what is wrong, `hint` what would be right."""

    def __init__(self, problem: str, hint: str):
        self.problem, self.hint = problem, hint
        super().__init__(f"{problem}; {hint}")


def parse_slo(text: str) -> dict[str, float]:
    """Read an SLO; returns the keys of a scenario's `slo`: ttft, tpot, e2e, ttft_p99 ... in seconds, attainment.

    Raises SloError.
    """
    rest, tool = _tool(" ".join(text.split()))
    found: dict[str, float] = {}
    while rest:
        match = _ITEM.match(rest)
        key, value = _target(match, tool) if match else _share(match := _SHARE.match(rest), rest)
        if key in found:
            raise SloError(f"names {key} twice", "give each target once")
        found[key] = value
        after = rest[match.end() :]
        if after and after[0] not in " ,;":
            raise SloError(f"can't be read from '{after[:20]}' on", "write such as 'ttft p99 < 500 ms, tpot < 50 ms, 95 %'")
        rest = after.lstrip(" ,;").removeprefix("and ").lstrip()
    if not set(found) - {"attainment"}:
        raise SloError("has no latency target", "write such as 'ttft:500 tpot:50' or 'ttft p99 < 500 ms'")
    return found


def _tool(text: str) -> tuple[str, str | None]:
    """The text without the name of a tool that stands first, and that name."""
    first, _, rest = text.partition(" ")
    name = first.rstrip(":").lower()
    return (rest.strip(), name) if name in TOOLS else (text, None)


def _target(match: re.Match, tool: str | None) -> tuple[str, float]:
    name = match["name"].lower()
    if why := ELSEWHERE.get((tool or "", name)):
        raise SloError(f"'{name}' of {tool} can't be taken over", why)
    if tool is None and name in AMBIGUOUS:
        said = f"{match['value']} {match['unit'] or match['suffix'] or 'ms'}"
        raise SloError(
            f"'{match['name']}' is not one thing: {NOT_ONE_THING}",
            f"for the mean write 'tpot < {said}', or the tool's name first, 'dynamo itl:20'; gaps are no target here",
        )
    if name not in NAMES:
        raise SloError(f"unknown latency '{match['name']}'", _hint(name, NAMES))
    if match["lead"] and match["percentile"]:
        raise SloError(f"names two percentiles of {name}, {match['lead']} and {match['percentile']}", "give one")
    percentile = _percentile(match["lead"] or match["percentile"])
    key = NAMES[name] if percentile is None else f"{NAMES[name]}_p{percentile}"
    suffix = "s" if match["suffix"] == "seconds" else match["suffix"]
    unit = match["unit"] or suffix
    if match["unit"] and suffix and match["unit"] != suffix:
        raise SloError(f"{name} has two units, {suffix} in its name and {match['unit']} behind its value", "give one")
    if unit is None:
        unit = _unit_of(name, match, tool)
        _check_bare(name, float(match["value"]), unit)
    try:
        return key, parse_seconds(f"{match['value']} {unit}")
    except QuantityError as error:
        raise SloError(f"{key}: {error.problem}", f"units: {', '.join(SECONDS)}") from None


def _unit_of(name: str, match: re.Match, tool: str | None) -> str:
    """What a bare number means: the tool's unit; milliseconds in vLLM's own spelling (ttft:500)."""
    if tool is not None:
        if name not in TOOLS[tool]:
            raise SloError(f"{tool} has no '{name}'", f"its names: {', '.join(TOOLS[tool])}; or give a unit")
        return TOOLS[tool][name]
    if match["sign"] == ":" and name in TOOLS["vllm"]:
        return MS
    raise SloError(
        f"{match['name']} has no unit",
        f"write '{match['value']} ms' or '{match['value']} s', or the tool's name first ({', '.join(TOOLS)})",
    )


def _check_bare(name: str, value: float, unit: str) -> None:
    """A number without a unit that no server could mean in the tool's unit was meant in the other one."""
    if NAMES[name] == "e2e":
        return
    if (unit == MS and value < LEAST_MS) or (unit == S and value > MOST_S):
        other = S if unit == MS else MS
        raise SloError(
            f"{name} of {value:g} would be {value:g} {unit}, the unit of a bare number here",
            f"write '{value:g} {other}' or '{value:g} {unit}'",
        )


def _percentile(word: str | None) -> int | None:
    if word is None:
        return None
    if word in ("mean", "avg", "max"):
        raise SloError(f"a {word} is no promise to a request", "give a percentile, such as 'ttft p99 < 500 ms'")
    percent = 50.0 if word == "median" else float(word[1:])
    if percent not in PERCENTILES:
        raise SloError(f"unknown percentile {word}", f"one of {', '.join(f'p{p}' for p in PERCENTILES)}")
    return int(percent)


def _share(match: re.Match | None, rest: str) -> tuple[str, float]:
    if match is None:
        raise SloError(f"can't be read from '{rest[:20]}' on", "write such as 'ttft p99 < 500 ms, tpot < 50 ms, 95 %'")
    share = float(match["value"]) / (100 if match["percent"] else 1)
    if not 0 < share < 1:
        raise SloError(
            f"an attainment of {match[0].strip()} can't be shown by any finite run" if share >= 1 else "attainment of nothing",
            "write a share such as 95 % or 0.99",
        )
    return "attainment", share


def _hint(name: str, known: dict[str, str]) -> str:
    return f"{did_you_mean(name, known).removeprefix('; ')} one of {', '.join(known)}".strip()
