"""Every latency by its name here, what it is, and what other tools call it. A dagger marks what is from memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Name:
    """One latency. `called`: (tool, its word for it), as printed."""

    key: str
    short: str
    definition: str
    called: tuple[tuple[str, str], ...]


NAMES: tuple[Name, ...] = (
    Name(
        "ttft_s",
        "TTFT",
        "arrival to the first token (first chunk)",
        (("vLLM bench†, GuideLLM†, AIPerf†, inference-perf†", "TTFT"),),
    ),
    Name("e2e_s", "E2E", "arrival to the last token", (("vLLM bench†", "E2EL"), ("AIPerf†", "request latency"))),
    Name(
        "tpot_s",
        "TPOT",
        "first token to last, divided by the tokens after the first; one value a request with two tokens or more",
        (("vLLM bench†", "TPOT"), ("GuideLLM†, AIPerf†, GenAI-Perf†", "ITL (a mean per request)")),
    ),
    Name(
        "ntpot_s",
        "NTPOT",
        "arrival to last token, divided by all tokens, the first included",
        (("inference-perf†", "normalized time per output token"), ("GuideLLM†", "TPOT")),
    ),
    Name(
        "chunk_gap_s",
        "chunk gap",
        "between two successive chunks of a request, however many tokens they hold; one value a gap",
        (("vLLM bench†", "ITL"), ("AIPerf†", "inter-chunk latency")),
    ),
    Name(
        "itl_s",
        "ITL",
        "gap before a token: the gap before its chunk shared among the chunk's tokens; every token counts once",
        (("inference-perf†", "ITL, where a chunk holds one token"),),
    ),
    Name(
        "ttsc_s",
        "TTSC",
        "first chunk to second chunk",
        (("AIPerf†, GenAI-Perf†", "time to second token"),),
    ),
)


def markdown() -> str:
    """The table of docs/metrics.md, "Who calls it what"."""
    rows = ["| key | name here | what it is | called elsewhere |", "| --- | --- | --- | --- |"]
    for name in NAMES:
        called = "; ".join(f"{tools}: {word}" for tools, word in name.called)
        rows.append(f"| `{name.key}` | {name.short} | {name.definition} | {called} |")
    return "\n".join(rows)
