"""The screen of `llmqsim workload inspect`."""

from __future__ import annotations

from llmqsim.workload.inspection.arrivals import Arrivals, Drift
from llmqsim.workload.inspection.inspect import Inspection
from llmqsim.workload.inspection.lengths import Lengths
from llmqsim.workload.inspection.sharing import Prefixes, Sessions


def inspect_screen(seen: Inspection) -> str:
    """At most 110 columns wide."""
    lines = [f"{seen.source}: {seen.rows:,} requests", *means(seen)]
    lines += [f"{'':10}{'mean':>9}{'CV':>7}{'p50':>9}{'p90':>9}{'p95':>9}{'p99':>9}{'p99.9':>9}{'max':>10}  beyond p99"]
    lines += _lengths("prompt", seen.prompt) + _lengths("output", seen.output)
    lines += _given(seen)
    lines += _arrivals(seen.arrivals) + _drift(seen.drift)
    lines += _prefixes(seen.prefixes) + _sessions(seen.sessions)
    d = seen.demand
    lines.append(
        f"KV-time   mean {d.kv_mean:,.3g}, p50 {d.kv_p50:,.3g}, p95 {d.kv_p95:,.3g}, p99 {d.kv_p99:,.3g} token·steps a "
        f"request; the heaviest 1 % hold {d.kv_top_share:.0%}"
    )
    lines += [f"note: {note}" for note in seen.notes]
    if seen.doubt:
        lines.append(f"in doubt: {seen.doubt}")
    return "\n".join(lines)


def means(seen: Inspection) -> list[str]:
    """What a plan on means alone would get wrong."""
    d = seen.demand
    lines = ["A plan on mean lengths and the mean rate alone:"]
    off = d.kv_at_means - 1
    lines.append(
        f"  KV-time of a request: {d.kv_at_means:.2f} times the true mean ({'too little' if off < 0 else 'too much'}, "
        f"{off:+.0%}); 1 request in 100 takes {d.kv_p99 / d.kv_mean:.1f} times the mean"
    )
    w = seen.waits
    if w is None:
        lines.append("  waits: no times, or too few requests, to tell")
        return lines
    lines.append(
        f"  P99 wait in a queue that is busy {w.load:.0%} of the time (a yardstick, not an LLM server): "
        f"{w.means_only:.3g} s by means, {w.trace:.3g} s by the trace ({_times(w.trace, w.means_only)})"
    )
    lines.append(
        f"  the trace's arrivals with mean lengths: {w.mean_lengths:.3g} s; the trace's lengths with Poisson arrivals: "
        f"{w.poisson_arrivals:.3g} s"
    )
    return lines


def _times(one: float, other: float) -> str:
    return f"{one / other:.1f} times" if other > 0 else "no wait by means"


def _lengths(name: str, its: Lengths) -> list[str]:
    tail = "" if its.tail_index is None else f", tail index {its.tail_index:.1f}"
    cells = "".join(f"{value:>9,}" for value in (its.p50, its.p90, its.p95, its.p99, its.p999))
    lines = [
        f"{name:10}{its.mean:>9,.0f}{its.cv:>7.2f}{cells}{its.max:>10,}  {its.tokens_beyond_p99:.1%} of tokens{tail}"
    ]
    if its.piles:
        shown = ", ".join(f"{length:,} ({share:.1%})" for length, share in its.piles)
        lines.append(f"{'':10}lengths that many requests share: {shown}")
    return lines


def _given(seen: Inspection) -> list[str]:
    lines = [f"output by prompt (rank correlation {seen.rank_correlation:.2f}): mean, p50, p95"]
    for band in seen.output_given_prompt:
        place = f"{band.prompt_low:,} to {band.prompt_high:,}"
        lines.append(
            f"  {place:>22}{band.rows:>10,} rows{band.output_mean:>10,.0f}{band.output_p50:>9,}{band.output_p95:>9,}"
        )
    return lines


def _arrivals(its: Arrivals | None) -> list[str]:
    if its is None:
        return ["arrivals  no times"]
    lines = [
        f"arrivals  {its.rate:.4g} a second over {_span(its.span_s)}; CV of gaps {its.gap_cv:.2f} (Poisson: 1)"
        + ("" if its.busiest_minute is None else f"; busiest minute {its.busiest_minute:.1f} times the mean")
    ]
    cells = []
    for one in its.dispersion:
        shown = "too few windows" if one.index is None else f"{one.index:.2f} (± {one.noise:.2f})"
        cells.append(f"{one.window_s:g} s {shown}")
    lines.append(f"{'':10}variance of counts over their mean (Poisson: 1 ± noise): {', '.join(cells)}")
    if its.longest_gap_share > 0.1:
        lines.append(f"{'':10}one gap makes {its.longest_gap_share:.0%} of the time: a pause, or a stamp in another unit")
    if its.by_hour is None:
        lines.append(f"{'':10}hours of the day: needs two days")
    else:
        mean = sum(its.by_hour) / 24
        shown = " ".join(f"{rate / mean:.2f}" for rate in its.by_hour)
        lines.append(f"{'':10}rate by hour ({its.hours_are}), of the mean: {shown}")
    return lines


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _drift(its: Drift) -> list[str]:
    lines = ["thirds    rows, rate a second, prompt mean and p95, output mean and p95"]
    for part in its.thirds:
        rate = "-" if part.rate is None else f"{part.rate:.3g}"
        lines.append(
            f"  {part.rows:>16,}{rate:>10}{part.prompt_mean:>10,.0f}{part.prompt_p95:>9,}"
            f"{part.output_mean:>10,.0f}{part.output_p95:>9,}"
        )
    change = "" if its.rate_change is None else f"rate {its.rate_change:+.0%}, "
    lines.append(
        f"{'':10}last third against the rest: {change}distance of prompts {its.prompt_distance:.3f}, of outputs "
        f"{its.output_distance:.3f} (by chance below {its.noise:.3f})"
    )
    return lines


def _prefixes(its: Prefixes | None) -> list[str]:
    if its is None:
        return ["prefixes  no block ids in the trace"]
    shown = ", ".join(
        f"{hit.hit_share:.1%} ({'unlimited' if hit.tokens is None else f'{hit.tokens:,}'})" for hit in its.hits
    )
    return [f"prefixes  prompt tokens that are cached already, by size of the cache in tokens: {shown}",
            f"{'':10}{its.blocks:,} blocks of {its.block_tokens}, {its.distinct:,} of them distinct; answers are not "
            "in it"]  # fmt: skip


def _sessions(its: Sessions | None) -> list[str]:
    if its is None:
        return ["sessions  not in the trace"]
    lines = [
        f"sessions  {its.sessions:,} with {its.turns_mean:.1f} requests each (p50 {its.turns_p50}, p95 {its.turns_p95}, "
        f"max {its.turns_max}); {its.reusable_share:.0%} of prompt tokens at most stood in the request before"
    ]
    if its.gap_p50_s is not None:
        lines.append(f"{'':10}from one request to the next: p50 {its.gap_p50_s:.3g} s, p95 {its.gap_p95_s:.3g} s")
    if its.cached_share is not None:
        lines.append(f"{'':10}{its.cached_share:.0%} of prompt tokens came from the provider's cache")
    return lines
