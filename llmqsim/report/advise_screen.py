"""The screen of `llmqsim advise`: verdict and cause, the table of levers, the best stack, what is left to buy."""

from __future__ import annotations

from typing import Any

from llmqsim.report.show import NOTHING, count, figures, percent, warnings, wrap

WIDTH = 110
LABEL = 12
NAME = 20
MARK = " *"
"""beside levers that change what the model answers"""


def advise_text(told: dict[str, Any]) -> str:
    """The answer as text. told : what planner.advise returns."""
    lines = warnings(told["warnings"], WIDTH)
    lines += wrap(told["question"], WIDTH) if told["question"] else []
    rows = [("answer", told["explanation"]), *_causes(told), ("now", _now(told))]
    lines += _labelled(rows)
    lines += ["", *_table(told["levers"]), "", *_labelled([*_stack(told), *_hardware(told)])]
    lines += _left_out(told["left_out"])
    for note in told["notes"]:
        lines += wrap(f"note: {note}", WIDTH)
    return "\n".join(line.rstrip() for line in lines)


def _labelled(rows: list[tuple[str, str]]) -> list[str]:
    lines = []
    for label, said in rows:
        parts = [said] if said.startswith("llmqsim ") else wrap(said, WIDTH - LABEL)  # a command is copied whole
        lines += [f"{label if not i else '':<{LABEL}}{line}" for i, line in enumerate(parts)]
    return lines


def _causes(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("cause" if not i else "also", f"{one['says']} ({one['evidence']})") for i, one in enumerate(told["causes"])
    ]


def _now(told: dict[str, Any]) -> str:
    base = told["base"]
    said = [
        f"{_share(its := base['attainment'])} of {percent(its['asked'])} asked for ({its['objective']})",
        f"{figures(told['rate_per_s'])} req/s arrive, the SLO holds up to {_rate(base['capacity_per_s'])}",
        _price(base),
    ]
    said.append(f"throughput {percent(base['utilisation'])} of saturated")
    return "; ".join(said)


def _price(one: dict[str, Any]) -> str:
    dollars = "" if one["usd_per_hour"] is None else f" at ${one['usd_per_hour']:,.2f} an hour"
    return f"{count(one['gpus'], 'GPU')}{dollars}"


def _share(one: dict[str, Any]) -> str:
    if one["low"] is None:
        return percent(one["mean"])
    return f"{percent(one['mean'])} [{percent(max(0.0, one['low']))}, {percent(min(1.0, one['high']))}]"


def _rate(one: dict[str, Any] | None) -> str:
    if one is None:
        return NOTHING
    if one["low"] is None:
        return figures(one["mean"])
    return f"{figures(one['mean'])} [{figures(max(0.0, one['low']))}, {figures(one['high'])}]"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["no lever is left to pull"]
    lines = [f"{'lever':<{NAME}}{'attainment, points':>25}{'req/s within the SLO':>29}{'GPUs':>6}  who gets worse"]
    for row in rows:
        name = f"{row['lever']}{MARK if row['changes_answers'] else ''}"
        mark = "" if row["helps"] else "no gain shown; "
        first, *more = wrap(mark + _worse(row["worse"]), WIDTH - NAME - 62)
        cells = f"{_points(row['attainment']):>25}{_gained(row['capacity_per_s']):>29}{row['gpus']:>6}"
        lines.append(f"{name:<{NAME}}{cells}  {first}")
        lines += [f"{'':<{NAME + 62}}{line}" for line in more]
        said = row["says"] + ("; changes the model's outputs" if row["changes_answers"] else "")
        lines += [f"  {line}" for line in wrap(said, WIDTH - 2)]
        lines.append(f"  {row['command']}")
    return lines


def _points(cell: dict[str, Any]) -> str:
    return _signed_interval(
        100 * cell["difference"], *(None if cell[k] is None else 100 * cell[k] for k in ("low", "high"))
    )


def _gained(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "not searched"
    return _signed_interval(cell["difference"], cell["low"], cell["high"])


def _signed_interval(value: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return _signed(value)
    return f"{_signed(value)} [{_signed(low)}, {_signed(high)}]"


def _signed(value: float) -> str:
    shown = figures(abs(value)) if abs(value) >= 0.005 else "0"
    return shown if shown == "0" else f"{'−' if value < 0 else '+'}{shown}"


def _worse(groups: list[dict[str, Any]]) -> str:
    """The group whose attainment falls most, or the first one; how many others there are."""
    if not groups:
        return "nobody shown"
    falls = sorted(groups, key=lambda one: (one["figure"] != "attainment", one["value"] - one["base"]))
    first = falls[0]
    name = first["group"].split(":", 1)
    who = f"{name[1]} tokens" if name[0] == "length" else name[1]
    what = {"attainment": "attainment", "ttft_s.p99": "TTFT p99", "e2e_s.mean": "E2E mean"}[first["figure"]]
    more = f" and {len(groups) - 1} more" if len(groups) > 1 else ""
    return f"{who}: {what}{more}"


def _stack(told: dict[str, Any]) -> list[tuple[str, str]]:
    one = told["stack"]
    if one is None:
        return [] if told["verdict"] == "no_hardware_needed" else [("best stack", "no lever is shown to help")]
    kept = "kept" if one["kept"] else "not kept"
    outputs = (
        f"{MARK} changes the model's outputs" if one["changes_answers"] else ": the model's outputs stay as they are"
    )
    attained = f"{_share(one['attainment'])} on fresh replications, {kept}"
    rows = [
        ("best stack", " + ".join(one["levers"]) + outputs),
        ("", f"{attained}; {_rate(one['capacity_per_s'])} req/s within the SLO"),
    ]
    if one["vllm_serve"]:
        rows.append(("vllm serve", "  ".join(one["vllm_serve"])))
    if one["other_changes"]:
        rows.append(("and change", "  ".join(one["other_changes"])))
    rows.append(("shown by", one["command"]))
    return rows


def _hardware(told: dict[str, Any]) -> list[tuple[str, str]]:
    rows, left, spared = [], told["hardware"], told["gpus_spared"]
    if left is not None and left["add_gpus"]:
        each = ", ".join(f"{number} {name}" for name, number in left["add_replicas"].items() if number)
        said = f"{count(left['add_gpus'], 'GPU')} more ({each}): {_share(left['attainment'])}"
        said += f"; most are wanted by: {left['phase']}"
        rows.append(("buy", said))
    elif left is not None:
        rows.append(("buy", f"{left['reason']}: {left['explanation']}"))
    if spared is not None:
        without, with_them, both = (_rate(spared[k]) for k in ("without_levers", "with_levers", "spared"))
        rows.append(("spared", f"{both} GPUs: this traffic takes {without} without the levers, {with_them} with them"))
    return rows


def _left_out(rows: list[dict[str, Any]]) -> list[str]:
    """Who gained nothing, by name, and what was not measured, by reason."""
    useless = list(dict.fromkeys(one["lever"] for one in rows if one["reason"] == "no gain in the first run"))
    lines = wrap(f"no gain in the first run: {', '.join(useless)}", WIDTH) if useless else []
    reasons = list(dict.fromkeys(one["reason"] for one in rows if one["reason"].startswith(("refused", "only"))))
    for reason in reasons:
        said = "; ".join(one["says"] for one in rows if one["reason"] == reason)
        lines += wrap(f"not measured: {said}: {reason}", WIDTH)
    return lines
