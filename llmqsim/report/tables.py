"""The screen: the answer in some 25 lines of at most 100 characters, on top what makes its figures err.

A verdict other than "stable" stands first, then what is not modelled and applies. Classes, clients that limit their own
requests and a warm-up have lines of their own (parts.py). No sentence is cut: where room is short, notes and classes
are counted instead of shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmqsim.metrics.waiting import WORDS
from llmqsim.report import headline, parts
from llmqsim.report.show import NOTHING, clip, count, duration, figures, limit, percent, warnings, wrap
from llmqsim.terminal import width

if TYPE_CHECKING:
    from llmqsim.result import Result

WIDTH, LINES = 100, 25
LABEL = 12
COLUMN = 11
SHOWN: tuple[tuple[str, str], ...] = (
    ("TTFT", "ttft_s"),
    ("TPOT", "tpot_s"),
    ("ITL", "itl_s"),
    ("E2E", "e2e_s"),
    ("wait", "wait_s"),
)


def screen(result: Result) -> str:
    """The report as text, without a trailing newline."""
    return render(result.summary())


def render(summary: dict[str, Any]) -> str:
    """The same from the figures of Result.summary()."""
    verdict, said = _verdict(summary), warnings(summary.get("warnings"), WIDTH)
    lines = _compose(summary)
    notes = _notes(summary["notes"], LINES - len(verdict) - len(lines))
    return "\n".join([*verdict, *said, *lines, *notes])


def _compose(summary: dict[str, Any]) -> list[str]:
    """All but what stands above and the notes."""
    verdict = summary["stability"]["verdict"]
    question = summary["scenario"].get("question")
    return [
        *(_question(question) if question else []),
        *_line("ran", headline.system(summary)),
        *_line("traffic", f"{headline.traffic(summary)}; {headline.outcome(summary)}"),
        *_latencies(summary),
        *_slo(summary),
        *(row for label, text in parts.class_lines(summary) for row in _line(label, text)),
        *(row for label, text in parts.client_lines(summary) for row in _line(label, text)),
        *(row for label, text in parts.warmup_lines(summary) for row in _line(label, text)),
        *(row for label, text in parts.policy_lines(summary) for row in _line(label, text)),
        *_line("throughput", _throughput(summary)),
        *_used(summary),
        *_line("waited for", _waited(summary)),
        *(_line("stable", summary["stability"]["evidence"]) if verdict == "stable" else []),
        *_line("trust", _trust(summary)),
        *(_line("no effect", told) if (told := parts.no_effect(summary)) else []),
    ]


def _question(text: str) -> list[str]:
    """The reader's own words, in two lines at most."""
    lines = wrap(text, WIDTH)
    return lines if len(lines) <= 2 else [lines[0], clip(" ".join(lines[1:]), WIDTH)]


def _used(summary: dict[str, Any]) -> list[str]:
    """How busy and how full the servers were, pool by pool where there are several."""
    if summary.get("pools"):
        return [row for label, text in parts.pool_lines(summary) for row in _line(label, text)]
    return [*_line("busy", _busy(summary)), *_line("KV cache", _kv(summary))]


def _line(label: str, text: str) -> list[str]:
    """A labelled line, wrapped; a label that is too long for its column (a class's name) has a line of its own."""
    wrapped = wrap(text, WIDTH - LABEL) or [NOTHING]
    if width(label) >= LABEL:
        return [*wrap(label, WIDTH), *(f"{'':<{LABEL}}{part}" for part in wrapped)]
    first = label + " " * (LABEL - width(label))
    return [f"{first if i == 0 else '':<{LABEL}}{part}" for i, part in enumerate(wrapped)]


def _verdict(summary: dict[str, Any]) -> list[str]:
    """What stands on top of a run that is not stable."""
    stability, requests = summary["stability"], summary["requests"]
    if stability["verdict"] == "stable":
        return []
    unfinished = requests["unfinished"] + requests["timed_out"]
    text = f"{stability['verdict'].upper()}: {stability['evidence']}."
    if unfinished:
        done = count(summary["requests"]["completed"], "request")
        text += f" Latencies are of the {done} that finished, {unfinished:,} did not."
        text += f" {requests['timed_out']:,} of these timed out." if requests["timed_out"] else ""
    elif stability["verdict"] == "overloaded":
        text += " The latencies below grow with the length of the run."
    return wrap(text, WIDTH)


def _latencies(summary: dict[str, Any]) -> list[str]:
    columns = ("mean", "p50", "p90", "p99", "max")
    cells = {label: [duration(summary[key][name]) for name in columns] for label, key in SHOWN}
    wide = max(COLUMN, 2 + max(len(cell) for row in cells.values() for cell in row))
    rows = {"": columns, **cells}
    return [f"{label:<{LABEL}}" + "".join(f"{cell:>{wide}}" for cell in row) for label, row in rows.items()]


def _slo(summary: dict[str, Any]) -> list[str]:
    slo = summary["slo"]
    if not slo["targets"] and not slo["percentiles"]:
        return []
    if not summary["requests"]["arrived"]:
        return _line("SLO", "no request arrived, so there is nothing to judge")
    said = [_attained(summary)] if slo["targets"] else []
    said += [_percentile(one) for one in slo["percentiles"]]
    good = [f"goodput {figures(summary['goodput_per_s'])} req/s"] if slo["targets"] else []
    return _line("SLO", "; ".join([*said, *good]))


def _attained(summary: dict[str, Any]) -> str:
    slo = summary["slo"]
    if summary["attainment"] is None and not slo["undecided"]["count"]:
        return "no request is left to judge"
    classes = (summary["scenario"].get("workload") or {}).get("classes") or {}
    limits = {} if any(spec.get("slo") for spec in classes.values()) else slo["targets"]
    each = ", ".join(
        f"{name.removesuffix('_s').upper()} {f'≤ {limit(limits[name])} ' if name in limits else ''}{percent(share)}"
        for name, share in slo["by_target"].items()
        if share is not None
    )
    wanted = "" if slo["target"] is None else f" (asked for {percent(slo['target'])}: {_judged(slo)})"
    said = [f"{percent(summary['attainment'])} of arrivals{wanted}"]
    if slo["completed_share"] != summary["attainment"]:
        said.append(f"{percent(slo['completed_share'])} of those completed")
    early = slo["undecided"]["count"]
    if early and slo["verdict"] != "undecided":
        said.append(f"{early:,} under way and not late yet are left out")
    if summary["clients"]["send_lag_s"]:
        said.append("counted from sending" if slo["counted_from"] == "sent" else "counted from when they were due")
    return "; ".join([*said, each] if each else said)


def _judged(judged: dict[str, Any]) -> str:
    """"met", "not met", or "undecided: the run is unsettled"."""
    if judged["verdict"] is None:
        return NOTHING
    return judged["verdict"].replace("_", " ") + (f": {judged['why']}" if judged["why"] else "")


def _percentile(one: dict[str, Any]) -> str:
    """"TTFT p99 ≤ 500 ms: 98.7 % are (not met)"."""
    target, _, rank = one["name"].partition("_")
    (most,) = one["limits_s"].values()
    verdict = "" if one["verdict"] is None else f" ({_judged(one)})"
    return f"{target.upper()} {rank} ≤ {limit(most)}: {percent(one['share'])} are{verdict}"


def _throughput(summary: dict[str, Any]) -> str:
    rates, cache = summary["throughput"], summary["prefix_cache"]
    cached = f" ({percent(cache['hit_share'])} cached)" if cache["hit_tokens"] else ""
    return (
        f"{figures(rates['requests_per_s'])} req/s, {figures(rates['output_tokens_per_s'])} output tokens/s, "
        f"{figures(rates['total_tokens_per_s'])} tokens/s with prompts{cached}"
    )


def _busy(summary: dict[str, Any]) -> str:
    used = summary["utilisation"]
    said = f"{parts.busy(used, ' of the time')}, {figures(used['mean_batch'])} requests in a step, "
    said += f"{duration(used['mean_step_s'])} a step"
    shares = [share for share in used["per_replica"] if share is not None]
    if len(shares) > 1:
        said += f"; replicas {percent(min(shares))} to {percent(max(shares))}"
    return said


def _kv(summary: dict[str, Any]) -> str:
    kv = summary["kv"]
    sustained = kv["sustained_concurrency"]
    running = f"{figures(sustained['mean'])} mean, {sustained['peak'] or 0:,} peak"
    preempted = count(summary["preemptions"], "preemption")
    if kv["blocks"] is None:
        return f"not limited; concurrency sustained {running}; {preempted}"
    return (
        f"{percent(kv['usage_mean'])} used on average, {percent(kv['usage_peak'])} at most, of {kv['blocks']:,} blocks "
        f"of {kv['block_size']}; {_floor(kv)}"
        f"sustained {running}{_whose_limit(summary)}; {preempted}"
    )


def _floor(kv: dict[str, Any]) -> str:
    """How many requests of max_model_len fit; a guarantee only where the run got there, past slots, budget and load."""
    floor = kv["guaranteed_concurrency"]
    if floor is None:
        return "concurrency "
    reached = floor <= (kv["sustained_concurrency"]["peak"] or 0)
    if not reached:
        return f"room for {figures(floor)} of max_model_len; concurrency "
    return f"concurrency guaranteed {figures(floor)}, "


def _whose_limit(summary: dict[str, Any]) -> str:
    """Where nobody waited for memory, the concurrency is what the load asked for, not what the pool can hold."""
    waited = summary["waiting_for"]["kv"]["mean_s"] or summary["waiting_for"]["preempted"]["mean_s"]
    return "" if waited else " (the load's, not the pool's limit)"


def _waited(summary: dict[str, Any]) -> str:
    waits = summary["waiting_for"]
    if waits["largest"] is None:
        taken_up = summary["kv"]["sustained_concurrency"]["peak"]
        return "nothing: every request was taken up at once" if taken_up else "nothing to tell: no request was taken up"
    order = sorted(WORDS, key=lambda name: -waits[name]["share"])
    return "; ".join(
        f"{WORDS[name]} {percent(waits[name]['share'])} ({duration(waits[name]['mean_s'])})"
        for name in order
        if waits[name]["share"]
    )


def _trust(summary: dict[str, Any]) -> str:
    """What the step costs rest on, how far they are off, the share of steps outside of that, and the sampling."""
    envelope = summary["envelope"]
    parts = [str(envelope["source"])] if envelope.get("source") else []
    said = envelope.get("provenance", ())
    parts += [sentence.split(" (")[0] for sentence in said if sentence.startswith("kernel error")]
    for axis, share in envelope["outside"].items():
        parts.append(f"{percent(share)} of steps beyond the measured range ({axis})")
    if any((envelope.get("box") or {}).values()) and not envelope["outside"]:
        parts.append("no step beyond the measured range")
    if (estimated := summary.get("estimated")) is not None:
        within, every = percent(estimated["percentiles_within"]), estimated["backlog_looks_every"]
        looks = "each arrival" if every == 1 else f"one arrival in {every:,}"
        parts.append(
            f"requests added up as they end: percentiles within {within}, backlog seen by {looks}, who starved not counted"
        )
    parts.append("one run: no interval")
    return "; ".join(parts)


def _notes(notes: list[str], room: int) -> list[str]:
    """The notes for which there is room, each whole; the last line counts the rest."""
    lines: list[str] = []
    for i, note in enumerate(notes):
        wrapped, left = wrap(f"note: {note}", WIDTH), len(notes) - i - 1
        if len(lines) + len(wrapped) + (left > 0) > room:
            return [*lines, f"and {count(left + 1, 'more note')} in the JSON"]
        lines += wrapped
    return lines
