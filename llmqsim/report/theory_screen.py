"""The screen of `llmqsim check-theory`: theory and simulation side by side, with their ratio."""

from __future__ import annotations

from typing import Any

from llmqsim.report.show import NOTHING, duration, figures, percent, warnings, wrap

WIDTH = 110


def theory_text(told: dict[str, Any]) -> str:
    """The table as text. told : what planner.theory.check_theory returns."""
    mix = told["mix"]
    head = wrap(told["question"], WIDTH) if told["question"] else []
    said = (
        f"traffic: {figures(mix['rate_per_s'])} req/s (gaps CV {figures(mix['arrival_cv'])}), {figures(mix['prompt_tokens'])} "
        f"prompt and {figures(mix['output_tokens'])} output tokens, time alone CV {figures(mix['service_cv'])}"
    )
    lines = [*warnings(told["warnings"], WIDTH), *head, *wrap(said, WIDTH), *_limits(told), ""]
    lines.append(f"{'':<32}{'theory':>12}{'simulated':>12}  {'95 % interval':<24}{'ratio':>6}  source")
    lines += [_row(row) for row in told["rows"]]
    lines += ["", f"stable?  {told['stability']}, over {told['replications']} runs"]
    for note in told["notes"]:
        lines += wrap(f"note: {note}", WIDTH)
    return "\n".join(lines)


def _limits(told: dict[str, Any]) -> list[str]:
    lines = []
    for one in told["limits"]:
        binding = "  <- binds" if one["name"] == told["binding"] else ""
        said = f"at most {figures(one['running'])} running: {figures(one['capacity_per_s'])} req/s a replica"
        lines.append(f"{one['name']:<14}{said:<52}{one['formula']}{binding}")
    return lines


def _row(row: dict[str, Any]) -> str:
    found = row["simulated"]
    mean = _value(found and found["mean"], row["unit"])
    interval = ""
    if found and found["low"] is not None:
        interval = f"[{_value(found['low'], row['unit'])}, {_value(found['high'], row['unit'])}]"
    label = row["quantity"] + (f", {row['unit']}" if row["unit"] in ("req/s", "requests") else "")
    ratio = NOTHING if row["ratio"] is None else f"{row['ratio']:.2f}"
    return f"{label:<32}{_value(row['theory'], row['unit']):>12}{mean:>12}  {interval:<24}{ratio:>6}  {row['source']}"


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return NOTHING
    if unit == "s":
        return duration(value) if abs(value) >= 1e-5 else "0 s"
    return percent(value) if unit == "share" else figures(value)
