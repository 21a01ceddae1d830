"""What a request, a class or a length decile waited for, in sentences."""

from __future__ import annotations

from typing import Any

from llmqsim.metrics.attribution import BEFORE_START
from llmqsim.metrics.waiting import WORDS
from llmqsim.report.show import count, duration, figures, percent


def why_text(what: str, told: dict[str, Any]) -> str:
    """The page for `llmqsim explain ... --request`, `--class` or `--decile`."""
    one = told["requests"] == 1
    return "\n".join([*_who(what, told, one), *_before(told, one), *_after(told, one), *_compared(told), *_ahead(told)])


def _who(what: str, told: dict[str, Any], one: bool) -> list[str]:
    ends = ", ".join(
        f"{n:,} {name.replace('_', ' ')}" if not one else name.replace("_", " ") for name, n in told["outcomes"].items()
    )
    shown = (lambda value: f"{value:,.0f}") if one else figures
    size = f"{shown(told['prompt_tokens'])} prompt and {shown(told['output_tokens'])} output tokens"
    if one:
        return [f"{what}: {size}; {ends}"]
    return [f"{what}: {count(told['requests'], 'request')} of on average {size}; {ends}. All times are means."]


def _before(told: dict[str, Any], one: bool) -> list[str]:
    waits = {name: told["waits"][name] for name in BEFORE_START}
    if any(value is None for value in waits.values()):
        return ["It was never let in." if one else "None of them was let in."]
    total = sum(waits.values())
    subject = "It" if one else "They"
    if total == 0:
        return [f"{subject} waited for nothing before the first step."]
    parts = sorted(((value, name) for name, value in waits.items() if value), reverse=True)
    listed = "; ".join(f"{duration(value)} ({percent(value / total)}) for {WORDS[name]}" for value, name in parts)
    return [f"{subject} waited {duration(total)} before the first step: {listed}."]


def _after(told: dict[str, Any], one: bool) -> list[str]:
    lines = []
    subject = "It was" if one else "They were"
    if told["preemptions"]:
        times = "once" if told["preemptions"] == 1 and one else f"{figures(told['preemptions'])} times"
        mean = "" if one else " on average"
        lines.append(f"{subject} preempted {times}{mean} and waited {duration(told['waits']['preempted'])} to resume.")
    if told["cached_tokens"]:
        lines.append(f"{figures(told['cached_tokens'])} tokens came from the prefix cache.")
    if told["e2e_s"]:
        waiting = told["e2e_s"] - told["computing_s"]
        lines.append(
            f"TTFT {duration(told['ttft_s'])}, E2E {duration(told['e2e_s'])}: {duration(told['computing_s'])} in steps, "
            f"{duration(waiting)} ({percent(max(0.0, waiting) / told['e2e_s'])}) waiting."
        )
    return lines


def _compared(told: dict[str, Any]) -> list[str]:
    everybody = told["all"]
    if told["rank"]["ttft_s"] is None or everybody["ttft_s"] is None:
        return []
    total = sum(everybody["waits"][name] for name in BEFORE_START)
    return [
        f"Of all completed requests {percent(told['rank']['ttft_s'])} had no longer TTFT and {percent(told['rank']['e2e_s'])} no "
        f"longer E2E; on average they waited {duration(total)} before the first step, TTFT {duration(everybody['ttft_s'])}."
    ]


def _ahead(told: dict[str, Any]) -> list[str]:
    ahead = told["ahead"]
    if ahead is None:
        return []
    if not ahead["waiting"] and not ahead["running"]:
        return ["Its replica was empty when it arrived."]
    largest = ahead["largest"]
    return [
        f"When it arrived, its replica had {count(ahead['running'], 'request')} running and {ahead['waiting']:,} waiting; the "
        f"largest, request {largest['request']}, has {largest['prompt_tokens']:,} prompt and {largest['output_tokens']:,} "
        "output tokens."
    ]
