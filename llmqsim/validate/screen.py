"""What `llmqsim validate` says on the terminal: errors by family, coverage, and what stands beside them."""

from __future__ import annotations

from llmqsim.validate.command import Validation
from llmqsim.validate.summary import ALL, of_whole_runs

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
    parts = [_headline(found), _families(found), _coverage(found)]
    if found.beside:
        parts.append(_beside(found))
    return "\n\n".join(parts)


def _headline(found: Validation) -> str:
    covered = sum(row.predicted is not None for row in found.rows)
    return (
        f"{len(found.cases)} cases, {found.runs} runs in {found.seconds:.0f} s; "
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


def _coverage(found: Validation) -> str:
    lines = []
    for family in dict.fromkeys(row.case.family for row in found.rows):
        mine = [row for row in found.rows if row.case.family == family]
        inside = [row for row in of_whole_runs(mine) if row.in_envelope]
        covered = sum(row.predicted is not None for row in mine)
        lines.append(
            f"{family}: {covered} of {len(mine)} figures predicted ({covered / len(mine):.0%}), {len(inside)} of whole runs in the envelope"
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
