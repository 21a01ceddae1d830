"""The page of one run: the verdict, what happened when, how long requests took, what they waited for, what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llmqsim.metrics import timeline
from llmqsim.report import headline
from llmqsim.report.page import in_time, of_requests, spent
from llmqsim.report.page.html import (
    BAD,
    GOOD,
    OPEN,
    Block,
    Part,
    facts,
    folded,
    paragraph,
    preformatted,
    tiles,
)
from llmqsim.report.show import count, duration, figures, limit, percent
from llmqsim.report.tables import render

if TYPE_CHECKING:
    from llmqsim.result import Result

NO_ROWS = (
    "This result holds its figures alone. For charts over time and the table of requests, give the scenario, or the file that "
    "`llmqsim run --requests` wrote beside it."
)


def part(summary: dict[str, Any], result: Result | None, prices: Mapping[str, float]) -> Part:
    """The page of a run. summary : its figures. result : the run with its requests; None where only figures were kept."""
    scenario = summary["scenario"]
    tone, word, verdict = judged(summary)
    shown = None if result is None else timeline.timeline(result)
    blocks = [
        Block("In short", tiles(_tiles(summary, prices)) + facts(_facts(summary))),
        Block(
            "Over time",
            paragraph(NO_ROWS) if shown is None or result is None else in_time.charts(summary, result, shown),
        ),
        Block("How long requests took", of_requests.latencies(summary, result)),
        Block("Who kept the SLO", of_requests.groups(summary, result)),
        Block("What requests waited for", of_requests.waiting(summary, result, shown)),
        Block("Memory and cache", of_requests.memory(summary, shown)),
        Block("Cost", facts(spent.rows(summary, prices))),
        Block("The slowest requests", of_requests.slowest(result)),
        Block("What it rests on", _rests_on(summary)),
    ]
    title = scenario.get("question") or scenario.get("name") or "A run"
    warned = [one["text"] for one in summary.get("warnings") or ()]
    return Part(title, tone, word, verdict, blocks, summary, "run.json", warned)


def judged(summary: dict[str, Any]) -> tuple[str, str, str]:
    """Tone, word and sentence: was what was asked for kept, and is the run one to judge by?"""
    stability = summary["stability"]
    settled = {"stable": "", "overloaded": " The run is overloaded: latencies grow with its length."}.get(
        stability["verdict"], f" The run is {stability['verdict']}: {stability['evidence']}."
    )
    objectives = _objectives(summary)
    if not objectives:
        tone = {"stable": GOOD, "overloaded": BAD}.get(stability["verdict"], OPEN)
        return (
            tone,
            stability["verdict"],
            f"No SLO is set. {stability['evidence'][:1].upper()}{stability['evidence'][1:]}.",
        )
    verdicts = [verdict for _, verdict, _ in objectives]
    for verdict, tone, word in (("not_met", BAD, "not met"), ("undecided", OPEN, "undecided")):
        if verdict in verdicts:
            said = "; ".join(text for text, own, _ in objectives if own == verdict)
            why = next((why for _, own, why in objectives if own == verdict and why), None)
            return tone, word, f"{said}{f' ({why})' if why else ''}.{settled}"
    said = "; ".join(text for text, _, _ in objectives)
    return GOOD, "met", f"{said}.{settled}"


def _objectives(summary: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    """(sentence, verdict, why) of every objective that was judged, those of classes with their own apart."""
    classes = (summary["scenario"].get("workload") or {}).get("classes") or {}
    own = [name for name, spec in classes.items() if spec.get("slo")]
    parts = [(f"{name}: ", summary["by_class"][name]) for name in own if name in summary["by_class"]] or [("", summary)]
    found = []
    for lead, one in parts:
        slo = one["slo"]
        if slo["verdict"] is not None:
            said = (
                f"{lead}{percent(one['attainment'])} of arrivals kept the SLO, {percent(slo['target'])} was asked for"
            )
            found.append((said, slo["verdict"], slo["why"]))
        for each in slo["percentiles"]:
            if each["verdict"] is None:
                continue
            target, _, rank = each["name"].partition("_")
            (most,) = each["limits_s"].values()
            said = f"{lead}{target.upper()} {rank} at most {limit(most)}: {percent(each['share'])} are"
            found.append((said, each["verdict"], each["why"]))
    return found


def _tiles(summary: dict[str, Any], prices: Mapping[str, float]) -> list[tuple[str, str, str]]:
    rates, used, kv = summary["throughput"], summary["utilisation"], summary["kv"]
    asked = summary["slo"]["target"]
    rows = []
    if summary["attainment"] is not None:
        rows.append(
            ("attainment", percent(summary["attainment"]), "" if asked is None else f"{percent(asked)} asked for")
        )
    for key, name in (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "E2E")):
        rows.append((f"{name} p99", duration(summary[key]["p99"]), f"{duration(summary[key]['p50'])} p50"))
    rows.append(
        (
            "completed",
            f"{figures(rates['requests_per_s'])} req/s",
            f"{figures(rates['output_tokens_per_s'])} output tokens/s",
        )
    )
    rows.append(("busy", percent(used["busy"]), f"{figures(used['mean_batch'])} requests in a step"))
    if kv["usage_peak"] is not None and kv["blocks"] is not None:
        rows.append(("KV cache at most", percent(kv["usage_peak"]), count(summary["preemptions"], "preemption")))
    return [*rows, *spent.tile(summary, prices)]


def _facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("ran", headline.system(summary)),
        ("traffic", f"{headline.traffic(summary)}; {headline.outcome(summary)}"),
        ("stable?", f"{summary['stability']['verdict']}: {summary['stability']['evidence']}"),
    ]


def _rests_on(summary: dict[str, Any]) -> str:
    import yaml

    envelope = summary["envelope"]
    rows = [("step times", text) for text in envelope.get("provenance") or ()]
    rows += [
        ("beyond", f"{percent(share)} of steps are beyond the measured range ({axis})")
        for axis, share in envelope["outside"].items()
    ]
    rows += [("no effect", f"{one['key']}: {one['why']}") for one in summary.get("no_effect") or ()]
    rows += [("note", text) for text in summary["notes"]]
    rows.append(("intervals", "one run has none; `llmqsim compare` and `size` have them"))
    scenario = yaml.safe_dump(summary["scenario"], sort_keys=False, allow_unicode=True, width=100)
    screen = preformatted(render(summary))
    return (
        facts(rows)
        + folded("the same as text", screen)
        + folded("the scenario with all its values", preformatted(scenario))
    )
