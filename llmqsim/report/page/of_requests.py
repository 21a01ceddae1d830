"""The requests of a run: how long they took, who kept the SLO, what they waited for, which were slowest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmqsim.metrics import curves, timeline
from llmqsim.metrics.waiting import WORDS
from llmqsim.report.page.axis import Axis
from llmqsim.report.page.bars import bar
from llmqsim.report.page.chart import Chart, Mark, Series, draw
from llmqsim.report.page.html import (
    Cell,
    esc,
    facts,
    number,
    paragraph,
    table,
)
from llmqsim.report.page.in_time import over_time
from llmqsim.report.show import NOTHING, count, duration, figures, limit, percent

if TYPE_CHECKING:
    from llmqsim.result import Result

LATENCIES = {
    "ttft": "time to first token (TTFT)",
    "tpot": "time per output token (TPOT)",
    "e2e": "time to the last token (E2E)",
}


def latencies(summary: dict[str, Any], result: Result | None) -> str:
    """Distributions with their targets, and the table of percentiles."""
    charts = ""
    if result is not None:
        charts = "".join(
            _distribution(summary, metric, *points) for metric, points in curves.distributions(result).items()
        )
    names = ("mean", "p50", "p90", "p95", "p99", "max")
    shown = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("ITL", "itl_s"), ("E2E", "e2e_s"), ("wait to start", "wait_s"))
    rows = [[Cell(label), *(number(duration(summary[key][n]), summary[key][n]) for n in names)] for label, key in shown]
    return f'<div class="charts">{charts}</div>' + table(
        "Latencies of the requests that were completed", ["", *names], rows
    )


def _distribution(summary: dict[str, Any], metric: str, seconds: list[float], shares: list[float]) -> str:
    if metric not in LATENCIES or not seconds:
        return ""
    along = Axis.over(seconds, "s", log=True)
    target = summary["slo"]["targets"].get(f"{metric}_s")
    marks: list[Mark] = []
    beside = "share of requests that took no longer"
    if target is not None:
        share = summary["slo"]["by_target"].get(f"{metric}_s")
        marks.append(Mark(f"target {limit(target)}: {percent(share)} keep it", target, across=False))
        along = Axis.over([*seconds, target], "s", log=True)
    name = LATENCIES[metric]
    alt = f"half take at most {duration(summary[f'{metric}_s']['p50'])}, 99 % at most {duration(summary[f'{metric}_s']['p99'])}"
    title = name[:1].upper() + name[1:]
    series = [Series("requests", shares)]
    return draw(Chart(title, beside, seconds, "at most", along, Axis(0.0, 1.02, "share"), series, alt, marks))


def groups(summary: dict[str, Any], result: Result | None) -> str:
    """Attainment and latencies by class, tenant and length."""
    return _classes(summary) + ("" if result is None else _lengths(summary, result))


def _attained_cells(share: float | None, asked: float | None) -> list[Cell]:
    if share is None:
        return [number(NOTHING, None), Cell(kind="bar")]
    return [number(percent(share), share), bar([share], 1.0, f"{percent(share)} kept the SLO", asked)]


def _classes(summary: dict[str, Any]) -> str:
    rows = []
    for name, one in {**summary["by_class"], **{f"tenant {k}": v for k, v in summary["by_tenant"].items()}}.items():
        ttft, tpot, e2e = one["ttft_s"], one["tpot_s"], one["e2e_s"]
        arrived = one["requests"]["arrived"]
        rows.append(
            [
                Cell(name), number(f"{arrived:,}", arrived), *_attained_cells(one["attainment"], one["slo"]["target"]),
                *(number(duration(value), value) for value in (ttft["p50"], ttft["p99"], tpot["p50"], e2e["p99"])),
            ]
        )  # fmt: skip
    if not rows:
        return ""
    heads = ["", "requests", "kept", Cell("the line: asked for"), "TTFT p50", "TTFT p99", "TPOT p50", "E2E p99"]
    return table("By class and tenant", heads, rows, searched=len(rows) > 8)


def _lengths(summary: dict[str, Any], result: Result) -> str:
    rows, asked = [], summary["slo"]["target"]
    for one in curves.by_length(result):
        rows.append(
            [
                Cell(f"{one['least']:,} to {one['most']:,}", one["least"], "keep"), number(f"{one['requests']:,}", one["requests"]),
                *_attained_cells(one["attainment"], asked),
                number(duration(one["ttft_p99_s"]), one["ttft_p99_s"]), number(duration(one["e2e_p99_s"]), one["e2e_p99_s"]),
                number(f"{one['preemptions']:,}", one["preemptions"]),
            ]
        )  # fmt: skip
    heads = ["tokens", "requests", "kept", Cell("the line: asked for"), "TTFT p99", "E2E p99", "preemptions"]
    return table("By length: tenths of the requests, prompt and output tokens together", heads, rows) if rows else ""


def waiting(summary: dict[str, Any], result: Result | None, shown: timeline.Timeline | None) -> str:
    """What requests waited for: over time, in all, and by length."""
    waits = summary["waiting_for"]
    if waits["largest"] is None:
        return paragraph("No request waited for anything.")
    order = sorted((name for name in WORDS if waits[name]["share"]), key=lambda name: -waits[name]["share"])
    inner = ""
    if shown is not None:
        series = [Series(WORDS[name], shown.waits[name]) for name in order]
        total = [sum(v or 0.0 for v in each) for each in zip(*(shown.waits[name] for name in order), strict=True)]
        beside = "mean wait of the requests that arrive in each stretch, by reason: the widest band is what binds then"
        inner += over_time(shown, "What binds when", beside, series, Axis.over(total, "s"), stacked=True)
    rows = [
        [
            Cell(WORDS[name]), number(duration(waits[name]["mean_s"]), waits[name]["mean_s"]),
            number(percent(waits[name]["share"]), waits[name]["share"]), bar([waits[name]["share"]], 1.0, percent(waits[name]["share"])),
        ]
        for name in order
    ]  # fmt: skip
    return (
        inner
        + table("Waiting by reason", ["waited for", "mean of a request", "share", ""], rows)
        + _waits_by_length(result, order)
    )


def _waits_by_length(result: Result | None, order: list[str]) -> str:
    parts = [] if result is None else [one for one in curves.by_length(result) if one["waits"]["step"] is not None]
    whole = max((sum(one["waits"].values()) for one in parts), default=0.0)
    if not whole:
        return ""
    rows = []
    for one in parts:
        waits = [one["waits"][name] for name in order]
        said = ", ".join(f"{name.replace('_', ' ')} {duration(wait)}" for name, wait in zip(order, waits, strict=True))
        size = Cell(f"{one['least']:,} to {one['most']:,}", one["least"], "keep")
        rows.append([size, number(duration(sum(waits)), sum(waits)), bar(waits, whole, said)])
    names = "".join(
        f'<li><svg viewBox="0 0 26 10" aria-hidden="true"><rect class="f{i}" width="26" height="10"/></svg>{esc(WORDS[name])}</li>'
        for i, name in enumerate(order)
    )
    return table("Mean wait by length", ["tokens", "mean of a request", ""], rows) + f'<ul class="key">{names}</ul>'


def memory(summary: dict[str, Any], shown: timeline.Timeline | None) -> str:
    """KV cache, preemptions and cache hits."""
    kv, cache, swap = summary["kv"], summary["prefix_cache"], summary["swap"]
    sustained = kv["sustained_concurrency"]
    rows = []
    if kv["blocks"] is not None:
        rows.append(
            ("KV cache", f"{kv['blocks']:,} blocks of {kv['block_size']} tokens a replica; {kv.get('source') or ''}")
        )
        rows.append(("used", f"{percent(kv['usage_mean'])} on average, {percent(kv['usage_peak'])} at most"))
    if kv["guaranteed_concurrency"] is not None:
        rows.append(("room for", f"{figures(kv['guaranteed_concurrency'])} requests of max_model_len"))
    rows.append(
        (
            "at once",
            f"{figures(sustained['mean'])} requests a replica while it works, {sustained['peak'] or 0:,} at most",
        )
    )
    again = f"; {summary['recomputed_tokens']:,} tokens computed again" if summary["recomputed_tokens"] else ""
    moved = f"; {swap['copied_blocks']:,} blocks swapped" if swap["copied_blocks"] else ""
    hit = summary["preempted_requests"]
    rows.append(("preemptions", f"{summary['preemptions']:,}, of {count(hit, 'request')}{again}{moved}"))
    rows.append(("cache hits", f"{cache['hit_tokens']:,} tokens, {percent(cache['hit_share'])} of those in prompts"))
    charts = ""
    if shown is not None and summary["preemptions"]:
        series = [Series("preemptions", [float(n) for n in shown.preemptions])]
        beside = "of the requests that arrive in each stretch"
        charts += over_time(shown, "Preemptions", beside, series, Axis.over(series[0].values))
    if shown is not None and cache["hit_tokens"]:
        series = [Series("found in the cache", shown.cached_share)]
        beside = "share of the prompt tokens of the requests that arrive in each stretch"
        charts += over_time(shown, "Cache hits", beside, series, Axis.share([0.0, *shown.cached_share]))
    return facts(rows) + (f'<div class="charts">{charts}</div>' if charts else "")


def slowest(result: Result | None) -> str:
    """The requests that took longest, one a row."""
    if result is None:
        return ""
    rows = []
    for one in curves.slowest(result):
        reason = f" ({one['waited_for'].replace('_', ' ')})" if one["waited_for"] else ""
        waited = duration(one["waited_s"]) + reason
        kept = {True: "kept", False: "missed", None: NOTHING}[one["met"]]
        rows.append(
            [
                number(str(one["request"]), one["request"]), number(duration(one["arrival_s"]), one["arrival_s"]), Cell(one["class"]),
                number(f"{one['prompt_tokens']:,}", one["prompt_tokens"]), number(f"{one['output_tokens']:,}", one["output_tokens"]),
                number(duration(one["ttft_s"]), one["ttft_s"]), number(duration(one["e2e_s"]), one["e2e_s"]),
                number(waited, one["waited_s"]), number(str(one["preemptions"]), one["preemptions"]),
                Cell(one["outcome"]), Cell(kept, kind="" if one["met"] is None else "good" if one["met"] else "bad"),
            ]
        )  # fmt: skip
    if not rows:
        return ""
    heads = [
        "request",
        "arrived",
        "class",
        "prompt",
        "output",
        "TTFT",
        "E2E",
        "waited (most for)",
        "preempted",
        "outcome",
        "SLO",
    ]
    return table(f"The {len(rows)} that took longest", heads, rows, searched=True)
