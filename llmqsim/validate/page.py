"""The validation page: measured against predicted by family and regime, what is in the envelope, where it is weak.

Markdown, made from a validation alone, so that the page says what the command found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from llmqsim.validate import keys
from llmqsim.validate.command import Validation
from llmqsim.validate.envelope import NEAR_SATURATION
from llmqsim.validate.errors_table import Row
from llmqsim.validate.summary import group, of_whole_runs, overloaded
from llmqsim.validate.trends import FEWEST_POINTS, FLAT, trends

METRICS = (
    ("e2e", "mean"), ("e2e", "p99"), ("tpot", "mean"), ("tpot", "p50"), ("ttft", "mean"), ("ttft", "p99"), ("itl", "mean"),
    ("prefill", "value"), ("decode", "value"), ("req_s", "value"), ("output_tok_s", "value"),
    ("output_tok_s_per_gpu", "value"), ("makespan_s", "value"),
)  # fmt: skip
WORST = 12
INTRO = """# Measured servers against predictions

Made by `{command}`; {cases} cases, {runs} simulated runs, {figures} measured figures, {seconds:.0f} s. How the command works and what its files hold: [validate.md](validate.md).

Errors are absolute percentages, mean / median / P90 over the runs of a row; bias is the median signed error (plus: predicted too high). One set of parameters holds for all; nothing is fitted to a run. The raw measurements are not part of this project.
"""
CENSORED = """## Time-outs and survivors

Clients that give up after 300 s censor a run: both sides count only the requests that were answered in time, and those are the lucky ones. In an overloaded run the share of survivors depends on the capacity to within a few per cent, so that percentiles over survivors say little; compare throughput and the number that failed.
"""


def page(found: Validation, command: str) -> str:
    """The whole page. command : how it was called."""
    parts = [
        INTRO.format(
            command=command, cases=len(found.cases), runs=found.runs, figures=len(found.rows), seconds=found.seconds
        ),
        _by_regime(found.rows),
        _overloaded(found.rows),
        _envelope(found.rows),
        _beside(found),
        _trends(found.rows),
        _near_saturation(found.rows),
        CENSORED + "\n" + _timed_out(found.rows),
        _weak_spots(found.rows),
        _not_run(found.rows),
        _unread(found),
    ]
    return "\n".join(part for part in parts if part)


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [" | ".join(line) for line in lines]
    return (
        "\n".join([f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}", *(f"| {row} |" for row in rows)]) + "\n"
    )


def _name(metric: str, stat: str) -> str:
    return metric if stat == "value" else f"{metric} {stat}"


def _by_regime(rows: list[Row]) -> str:
    """One line a family, regime and metric, whole runs."""
    groups: dict[tuple, list[Row]] = {}
    for row in of_whole_runs(rows):
        if (row.figure.metric, row.figure.stat) in METRICS:
            groups.setdefault((row.case.family, row.case.regime, row.figure.metric, row.figure.stat), []).append(row)
    lines = []
    for (family, regime, metric, stat), members in groups.items():
        told = group((family, "", "", regime, metric, stat), members)
        errors = "–" if told.mean is None else f"{told.mean:.1f} / {told.median:.1f} / {told.p90:.1f}"
        bias = "–" if told.bias is None else f"{told.bias:+.1f}"
        lines.append((family, regime, _name(metric, stat), f"{told.covered} of {told.n}", errors, bias))
    return "## By family and regime\n\n" + _table(("family", "regime", "metric", "runs", "% error", "bias"), lines)


def _overloaded(rows: list[Row]) -> str:
    """What is told apart: latencies with a queue in them, of runs that were overloaded."""
    told = [
        (one.key[0], _name(*one.key[4:]), str(one.covered), f"{one.mean:.1f} / {one.median:.1f}", f"{one.bias:+.1f}")
        for one in overloaded(rows)
        if one.mean is not None
    ]
    if not told:
        return ""
    head = (
        "## Overloaded runs, apart\n\nTTFT, E2E and NTPOT of runs whose simulation was overloaded. They grow for as long "
        "as such a run lasts, and a few per cent of capacity move them by any factor, so they are in no mean of this "
        "page but these.\n\n"
    )
    return head + _table(("family", "metric", "figures", "mean / median % error", "bias"), told)


def _unread(found: Validation) -> str:
    """Keys that no reader looked at."""
    lines = [(text, str(count)) for text, count in keys.told(found.cases)]
    return "## Keys that are not read\n\n" + _table(("key", "cases"), lines) if lines else ""


def _envelope(rows: list[Row]) -> str:
    """In and out of the envelope, and why out."""
    lines = []
    for family in dict.fromkeys(row.case.family for row in rows):
        whole = [row for row in of_whole_runs(rows) if row.case.family == family and _latency_or_rate(row)]
        for inside in (True, False):
            kept = (row for row in whole if row.in_envelope is inside and not row.apart)
            mine = [row.ape_pct for row in kept if row.ape_pct is not None]
            if mine:
                told = f"{np.mean(mine):.1f} / {np.median(mine):.1f}"
                lines.append((family, "inside" if inside else "outside", str(len(mine)), told))
    reasons: dict[str, int] = {}
    for row in of_whole_runs(rows):
        if row.predicted is not None and not row.in_envelope:
            first = row.reason.split("; ")[0]
            reasons[first] = reasons.get(first, 0) + 1
    worst = sorted(reasons.items(), key=lambda item: -item[1])[:WORST]
    said = "\n".join(f"- {reason} ({count} figures)" for reason, count in worst)
    return (
        "## The envelope\n\nAll latency and throughput figures of whole runs together, without those told apart.\n\n"
        + _table(("family", "envelope", "figures", "mean / median % error"), lines)
        + ("\nWhy figures are outside:\n\n" + said + "\n" if said else "")
    )


def _latency_or_rate(row: Row) -> bool:
    return row.figure.metric not in ("n_ok", "n_failed", "max_in_flight", "duration_s", "output_tok_per_request")


def _beside(found: Validation) -> str:
    if not found.beside:
        return ""
    lines = [
        (
            o.who,
            _name(o.metric, o.stat),
            str(o.n),
            f"{o.mean:.1f} / {o.median:.1f}",
            f"{o.ours_mean:.1f} / {o.ours_median:.1f}",
        )
        for o in found.beside
    ]
    head = "## Beside others\n\nOn the same cases: the null model of the data's authors, which knows no queue, and what other simulators' authors published.\n\n"
    return head + _table(("who", "metric", "cases", "theirs, mean / median %", "ours"), lines)


def _trends(rows: list[Row]) -> str:
    """Shapes over concurrency, where levels can't be expected to fit."""
    lines = [
        (
            told.regime,
            _name(told.metric, told.stat),
            str(told.sweeps),
            f"{told.same_way} of {told.steps}",
            "–" if told.rank is None else f"{told.rank:.2f}",
            f"{told.measured:.2f} ×",
            f"{told.predicted:.2f} ×",
        )
        for told in trends(rows)
    ]
    if not lines:
        return ""
    head = f"## Trends over concurrency\n\nWhere the number of workers or the link is not stated, a level can't be expected to fit; the shape of the curve can. Sweeps of at least {FEWEST_POINTS} concurrencies; steps are neighbouring points whose measured figures differ by more than {FLAT:.0%}; growth is that of the last point over the first, median over the sweeps.\n\n"
    columns = ("regime", "metric", "sweeps", "steps the same way", "Spearman, median", "growth measured", "predicted")
    return head + _table(columns, lines)


def _near_saturation(rows: list[Row]) -> str:
    """Runs whose errors grow, with their g, and what their TPOT shows."""
    seen: dict[str, Row] = {}
    for row in of_whole_runs(rows):
        if (
            row.gain is not None
            and row.gain >= NEAR_SATURATION
            and (row.figure.metric, row.figure.stat) == ("tpot", "mean")
        ):
            seen.setdefault(row.case.id, row)
    if not seen:
        return ""
    lines = [
        (row.case.id, f"{row.gain:.2f}", "–" if row.amplification is None else f"{row.amplification:.1f}",
         "–" if row.error_pct is None else f"{row.error_pct:+.1f}")
        for row in sorted(seen.values(), key=lambda row: -row.gain)
    ]  # fmt: skip
    head = f"## Near saturation\n\nAn error of a step's time grows 1/(1 − g)-fold in TPOT. Runs with g from {NEAR_SATURATION:g} on: read their band as that many times the error of a lightly loaded run.\n\n"
    return head + _table(("run", "g", "1/(1 − g)", "TPOT error %"), lines)


def _timed_out(rows: list[Row]) -> str:
    cases = dict.fromkeys(
        row.case.id
        for row in rows
        if "timed out" in row.reason or (row.figure.metric == "n_failed" and row.figure.measured > 0)
    )
    lines = []
    for name in cases:
        mine = {
            row.figure.metric: row
            for row in rows
            if row.case.id == name and row.stage == "all" and row.figure.stat == "value"
        }
        failed, rate = mine.get("n_failed"), mine.get("req_s")
        lines.append((name, *_pair(failed), *_pair(rate)))
    return (
        _table(("run", "failed, measured", "predicted", "req/s, measured", "predicted"), lines)
        if lines
        else "No run timed out.\n"
    )


def _pair(row: Row | None) -> tuple[str, str]:
    if row is None:
        return "–", "–"
    return f"{row.figure.measured:,.4g}", "–" if row.predicted is None else f"{row.predicted:,.4g}"


def _weak_spots(rows: list[Row]) -> str:
    """Groups of runs that are worst in TPOT, E2E or throughput, in words."""
    groups: dict[tuple, list[Row]] = {}
    for row in of_whole_runs(rows):
        if row.error_pct is not None and not row.apart and (row.figure.metric, row.figure.stat) in METRICS:
            groups.setdefault(
                (row.case.family, row.case.model, row.case.gpu, row.figure.metric, row.figure.stat), []
            ).append(row)
    told = [(key, group((*key[:3], "", *key[3:]), members)) for key, members in groups.items()]
    worst = sorted(told, key=lambda item: -item[1].median)[:WORST]
    lines = [
        f"- {model} on {gpu} ({family}): {_name(metric, stat)} {'too high' if g.bias > 0 else 'too low'}, median error {g.median:.0f} % over {g.covered}"
        for (family, model, gpu, metric, stat), g in worst
    ]
    return "## Weak spots\n\nThe groups with the largest median errors:\n\n" + "\n".join(lines) + "\n"


def _not_run(rows: list[Row]) -> str:
    reasons: dict[tuple[str, str], int] = {}
    for row in rows:
        if row.predicted is None:
            reasons[row.case.family, row.reason] = reasons.get((row.case.family, row.reason), 0) + 1
    if not reasons:
        return "## Not run\n\nEvery measured figure has a prediction.\n"
    lines = [
        (family, str(count), reason)
        for (family, reason), count in sorted(reasons.items(), key=lambda item: -item[1])[: 2 * WORST]
    ]
    return "## Not run\n\n" + _table(("family", "figures", "reason"), lines)
