"""The screen of `llmqsim compare`: one table of figures, one of groups of requests, then the notes."""

from __future__ import annotations

from typing import Any

from llmqsim.report.show import NOTHING, duration, figures, percent, warnings, wrap

WIDTH = 110
SHOWN_GROUPS = (("class", "class"), ("tenant", "tenant"), ("length", "tokens, prompt and output"))


def compare_text(told: dict[str, Any]) -> str:
    """The table as text, without a trailing newline. told : what planner.compare returns."""
    return "\n".join([*_head(told), "", *_figures(told), *_groups(told), *_times(told), *_closing(told)])


def _head(told: dict[str, Any]) -> list[str]:
    runs = "one run" if told["replications"] == 1 else f"{told['replications']} paired runs"
    others = ", ".join(told["differences"])
    against = told["against"]
    if "base" not in told["variants"] and any("takes no part" in note for note in told["notes"]):
        against += f" (--variants base,{','.join(told['variants'])} compares with the scenario itself)"
    said = f"{others} against {against}; {runs} each, seed {told['seed']}; differences with 95 % intervals"
    question = wrap(told["question"], WIDTH) if told["question"] else []
    return [*warnings(told["warnings"], WIDTH), *question, *wrap(said, WIDTH)]


def _figures(told: dict[str, Any]) -> list[str]:
    wide = max(12, *(len(name) for name in told["variants"])) + 2
    heads = f"{'value':>11}{'difference':>13}  {'95 % interval':<20}{'would see':>10}  verdict"
    rows = [f"{'':<18}{'variant':<{wide}}{heads}"]
    for key, own in told["variants"][told["against"]]["figures"].items():
        kind = unit(key)
        rows.append(f"{label(key):<18}{told['against']:<{wide}}{_value(own and own['mean'], kind):>11}")
        for name, differences in told["differences"].items():
            rows.append(f"{'':<18}{name:<{wide}}{_difference(differences[key], kind, told['variants'][name], key)}")
    return rows


def _difference(cell: dict[str, Any] | None, kind: str, variant: dict[str, Any], key: str) -> str:
    """Value, difference, interval and verdict of one variant."""
    if cell is None:
        own = variant["figures"][key]
        return f"{_value(own and own['mean'], kind):>11}{NOTHING:>13}"
    shown, interval = _change(cell, kind)
    note = "" if variant["stability"] != "overloaded" or kind != "s" else " (overloaded)"
    least = _least(cell, kind)
    return f"{_value(cell['value'], kind):>11}{f' {shown}':>13}  {interval:<20}{least:>10}  {cell['verdict']}{note}"


def _scale(cell: dict[str, Any], kind: str) -> tuple[float, str]:
    """Points for shares, per cent of the base where there is one."""
    if kind == "share":
        return 100.0, " points"
    return (100.0 / abs(cell["base"]), " %") if cell["base"] else (1.0, "")


def _least(cell: dict[str, Any], kind: str) -> str:
    """The smallest difference that would have been seen."""
    scale, suffix = _scale(cell, kind)
    least = cell["smallest_seen"]
    return NOTHING if least is None else f"{figures(least * scale)}{' pts' if kind == 'share' else suffix}"


def _change(cell: dict[str, Any], kind: str) -> tuple[str, str]:
    """The difference and its interval."""
    scale, suffix = _scale(cell, kind)
    low, high = ("" if v is None else _signed(v * scale) for v in (cell["low"], cell["high"]))
    return f"{_signed(cell['difference'] * scale)}{suffix}", f"[{low}, {high}]" if low else "none"


def _signed(value: float) -> str:
    shown = figures(abs(value))
    return "0" if value == 0 else f"{'−' if value < 0 else '+'}{shown}"


def _value(value: float | None, kind: str) -> str:
    if value is None:
        return NOTHING
    return {"s": duration, "share": percent, "/s": lambda v: f"{figures(v)}/s"}.get(kind, figures)(value)


def _groups(told: dict[str, Any]) -> list[str]:
    rows: list[str] = []
    for kind, title in SHOWN_GROUPS:
        names = [name for name in told["groups"] if name.startswith(f"{kind}:")]
        if names:
            rows += ["", *_group_rows(told, kind, title, names)]
    return rows


def _group_rows(told: dict[str, Any], kind: str, title: str, names: list[str]) -> list[str]:
    """Mean end-to-end time and longest wait of each group, for each variant; intervals are in the JSON."""
    first = max(14, *(len(n) - len(kind) for n in names)) + 1
    rows = [f"by {title}: mean E2E, its change, and the longest wait before the first step"]
    wide = max(12, *(len(name) for name in told["variants"])) + 2
    rows.append(
        f"{'':<{first}}{'requests':>9}  {'variant':<{wide}}{'E2E mean':>10}{'difference':>12}{'would see':>11}"
        f"{'longest wait':>14}  verdict"
    )
    for name in names:
        group = told["groups"][name]
        for i, (variant, cells) in enumerate(group["variants"].items()):
            lead = f"{name.split(':', 1)[1]:<{first}}{figures(group['requests']):>9}" if not i else " " * (first + 9)
            rows.append(f"{lead}  {variant:<{wide}}{_group_cell(cells, i == 0)}".rstrip())
    return rows


def _group_cell(cells: dict[str, Any], against: bool) -> str:
    cell, wait = cells["figures"]["e2e_s.mean"], duration(cells["longest_wait_s"])
    if cell is None:
        return f"{NOTHING:>10}{'':>12}{'':>11}{wait:>14}"
    if against:
        return f"{duration(cell['base']):>10}{'':>12}{'':>11}{wait:>14}"
    shown, _ = _change(cell, "s")
    return f"{duration(cell['value']):>10}{shown:>12}{_least(cell, 's'):>11}{wait:>14}  {cell['verdict']}"


def _times(told: dict[str, Any]) -> list[str]:
    """One line a variant: in which tenths of the run its mean end-to-end time differs."""
    names = [name for name in told["groups"] if name.startswith("time:")]
    rows = []
    for variant in told["differences"] if names else ():
        cells = {name: told["groups"][name]["variants"][variant]["figures"]["e2e_s.mean"] for name in names}
        judged = {name.split(":", 1)[1]: cell["verdict"] for name, cell in cells.items() if cell is not None}
        parts = []
        for word in dict.fromkeys(judged.values()):
            where = [name.removesuffix(" %") for name, verdict in judged.items() if verdict == word]
            listed = f" ({', '.join(where)} %)" if word in ("better", "worse") and len(where) < len(judged) else ""
            parts.append(f"{word} in {len(where)}{listed}")
        rows += wrap(f"{variant}: {'; '.join(parts)}", WIDTH)
    return ["", "by when they were due, tenths of the requests: mean E2E", *rows] if rows else []


def _settling(told: dict[str, Any]) -> list[str]:
    """What would give a verdict on the figures that have none."""
    ways: dict[str, list[str]] = {}
    for differences in told["differences"].values():
        for key, cell in differences.items():
            if cell is not None and cell["verdict"] == "not enough runs":
                ways.setdefault(_way(cell["settles"]), []).append(label(key))
    return [
        line for way, names in ways.items() for line in wrap(f"{way}: {', '.join(dict.fromkeys(names))}", WIDTH)
    ]  # fmt: skip


def _way(settles: dict[str, int] | None) -> str:
    if settles is None:
        return "no verdict from one run, and this traffic is one run"
    if "replications" in settles:
        return f"--replications {settles['replications']} may settle"
    return f"a run of some {settles['requests']:,} requests may settle"


def _closing(told: dict[str, Any]) -> list[str]:
    verdicts = "; ".join(f"{name} {own['stability']}" for name, own in told["variants"].items())
    engines = ", ".join(dict.fromkeys(own["engine"] for own in told["variants"].values()))
    lines = ["", *wrap(f"stable?  {verdicts} ({engines} engine)", WIDTH)]
    lines += wrap("would see: a difference as large as this would have been called (half of the interval)", WIDTH)
    lines += _settling(told)
    for note in told["notes"]:
        lines += wrap(f"note: {note}", WIDTH)
    return lines


def label(key: str) -> str:
    """What a figure is called on the screen: "TTFT p99" of "ttft_s.p99"."""
    names = {"fairness": "Jain fairness", "goodput_per_s": "goodput", "throughput.output_tokens_per_s": "output tokens"}
    head, _, statistic = key.partition(".")
    series = {"ttft_s", "tpot_s", "ntpot_s", "e2e_s", "itl_s", "wait_s", "slowdown"}
    if head in series:
        word = head.removesuffix("_s")
        return f"{word if word in ('wait', 'slowdown') else word.upper()} {statistic}"
    return names.get(key, key.replace("_per_s", "").replace("_", " "))


def unit(key: str) -> str:
    """What it is measured in: "s", "share", "/s" or "" (a plain number)."""
    head = key.partition(".")[0]
    if head.endswith("_s") and not key.endswith("_per_s") or key == "utilisation.mean_step_s":
        return "s"
    if key in ("attainment", "utilisation.busy", "kv.usage_mean", "kv.usage_peak", "prefix_cache.hit_share"):
        return "share"
    return "/s" if key.endswith("_per_s") else ""
