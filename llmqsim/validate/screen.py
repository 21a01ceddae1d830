"""What `llmqsim validate` says on the terminal: errors by family, coverage, and what stands beside them."""

from __future__ import annotations

from llmqsim.validate import keys
from llmqsim.validate.command import Validation
from llmqsim.validate.summary import ALL, of_whole_runs, overloaded

SHOWN = (
    "e2e",
    "tpot",
    "ttft",
    "itl",
    "prefill",
    "decode",
    "req_s",
    "output_tok_s",
    "output_tok_s_per_gpu",
    "makespan_s",
)
STATS = ("mean", "p50", "p90", "p99", "value")


def screen(found: Validation) -> str:
    """The whole text."""
    parts = [_headline(found), _families(found), _overloaded(found), _coverage(found), _unread(found)]
    if found.beside:
        parts.append(_beside(found))
    return "\n\n".join(part for part in parts if part)


def _headline(found: Validation) -> str:
    covered = sum(row.predicted is not None for row in found.rows)
    failed = f" ({found.runs - found.ran} of them failed)" if found.ran < found.runs else ""
    return (
        f"{len(found.cases)} cases, {found.runs} runs{failed} in {found.seconds:.0f} s; "
        f"{covered} of {len(found.rows)} measured figures predicted"
    )


def _families(found: Validation) -> str:
    lines = [f"{'family, whole runs':<28}{'metric':<22}{'n':>5}{'mean':>9}{'median':>9}{'P90':>9}{'bias':>9}   % error"]
    for group in found.groups:
        family, gpu, model, regime, metric, stat = group.key
        if (gpu, model, regime) != (ALL, ALL, ALL) or metric not in SHOWN or stat not in STATS or group.mean is None:
            continue
        name = f"{metric} {stat}" if stat != "value" else metric
        figures = "".join(f"{value:>9.1f}" for value in (group.mean, group.median, group.p90))
        lines.append(f"{family:<28}{name:<22}{group.covered:>5}{figures}{group.bias:>+9.1f}")
    return "\n".join(lines)


def _overloaded(found: Validation) -> str:
    """Errors of overloaded runs' queues, which are in no mean above."""
    lines = [
        f"{one.key[0]:<28}{' '.join(one.key[4:]):<22}{one.covered:>5}{one.mean:>9.1f}{one.median:>9.1f}{one.p90:>9.1f}"
        f"{one.bias:>+9.1f}"
        for one in overloaded(found.rows)
        if one.mean is not None and one.key[4] in SHOWN and one.key[5] in STATS
    ]
    head = "overloaded runs, apart: their queues depend on how long the run lasts"
    return "\n".join([head, *lines]) if lines else ""


def _unread(found: Validation) -> str:
    lines = [f"    {count} × {text}" for text, count in keys.told(found.cases)]
    return "\n".join(["keys that are not read, and in how many cases:", *lines]) if lines else ""


def _coverage(found: Validation) -> str:
    lines = []
    for family in dict.fromkeys(row.case.family for row in found.rows):
        mine = [row for row in found.rows if row.case.family == family]
        inside = [row for row in of_whole_runs(mine) if row.in_envelope]
        covered = sum(row.predicted is not None for row in mine)
        lines.append(
            f"{family}: {covered} of {len(mine)} figures predicted ({covered / len(mine):.0%}), "
            f"{len(inside)} of whole runs in the envelope"
        )
        reasons: dict[str, int] = {}
        for row in mine:
            if row.predicted is None:
                reasons[row.reason] = reasons.get(row.reason, 0) + 1
        worst = sorted(reasons.items(), key=lambda item: -item[1])[:4]
        lines += [f"    {count} × {reason}" for reason, count in worst]
    return "\n".join(lines)


def _beside(found: Validation) -> str:
    lines = [f"{'beside':<40}{'metric':<12}{'n':>4}{'theirs mean':>13}{'median':>9}{'ours mean':>11}{'median':>9}"]
    for other in found.beside:
        numbers = f"{other.mean:>13.1f}{other.median:>9.1f}{other.ours_mean:>11.1f}{other.ours_median:>9.1f}"
        lines.append(f"{other.who:<40}{other.metric + ' ' + other.stat:<12}{other.n:>4}{numbers}")
    return "\n".join(lines)
