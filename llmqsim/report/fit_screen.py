"""The table of `llmqsim workload fit --traffic`: models from the smallest on, and plain resampling beside them."""

from __future__ import annotations

from llmqsim.workload.model.mixes import KV_TOLERANCE, LENGTH_TOLERANCE
from llmqsim.workload.model.score import LIGHT_TOLERANCE, WAIT_TOLERANCE, Scored, TrafficFit

WIDTH = 24


def fit_screen(fit: TrafficFit) -> str:
    """At most 116 columns wide."""
    lines = [
        f"traffic of {fit.source}: {fit.rows:,} requests; models fitted on the first {fit.early_rows:,} (two thirds in time)",
        f"{'':{WIDTH}}{'':>9}{'in sample':^53}{'last third':^31}".rstrip(),
        f"{'model':{WIDTH}}{'numbers':>9}{'lengths':>9}{'KV P99':>9}{'disp. 60 s':>12}{'P99 wait':>10}{'at 40 %':>10}"
        f"{'lengths':>10}{'KV P99':>9}{'P99 wait':>12}",
    ]
    for one in (*fit.scored, fit.floor):
        lines.append(_row(one, "chosen" if one.name == fit.chosen else ""))
    seen, late = fit.trace, fit.late
    lines.append(
        f"trace: dispersion at 60 s {_number(seen.dispersion_60s)}, P99 wait {_number(seen.wait_p99_s)} s (two thirds), "
        f"{_number(late.wait_p99_s)} s (last third)"
    )
    lines.append(f"chosen: {fit.chosen}, {fit.why}")
    lines.append(
        f"Lengths: largest error of mean, P50, P95, P99 of prompt and output. Tolerance in sample: lengths {LENGTH_TOLERANCE:.0%}, "
        f"P99 of KV-time {KV_TOLERANCE:.0%},"
    )
    lines.append(
        f"P99 wait {WAIT_TOLERANCE:.0%}, at a load of 40 % {LIGHT_TOLERANCE:.0%} (reference queue, docs/workload.md; median of "
        "drawings). 'resampled' is the past itself: its error is drift."
    )
    return "\n".join(lines)


def _row(one: Scored, mark: str) -> str:
    late = one.late_wait_error
    return (
        f"{one.name[:WIDTH - 1]:{WIDTH}}{one.numbers:>9,}{_percent(one.lengths_error, False):>9}{_percent(one.kv_error):>9}"
        f"{_number(one.in_sample.dispersion_60s):>12}{_percent(one.wait_error):>10}{_percent(one.light_wait_error):>10}"
        f"{_percent(one.late_lengths_error, False):>10}{_percent(one.late_kv_error):>9}{_percent(late):>12}  {mark}"
    ).rstrip()


def _percent(value: float | None, sign: bool = True) -> str:
    if value is None:
        return "-"
    digits = 1 if abs(value) < 0.1 else 0
    return f"{100 * value:{'+' if sign else ''}.{digits}f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
