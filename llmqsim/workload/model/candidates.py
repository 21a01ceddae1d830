"""Models of a trace, from the smallest to the largest, each fitted on the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from llmqsim.workload.fit import MIN_ROWS
from llmqsim.workload.inspection.arrivals import by_hour, two_sample
from llmqsim.workload.lengths import Constant, Lognormal
from llmqsim.workload.model.laws import Gaps, Regimes, gap_table
from llmqsim.workload.model.mixes import Mix, Pair, fit_mix
from llmqsim.workload.model.shape import Shape
from llmqsim.workload.model.traffic import Stream, TrafficModel
from llmqsim.workload.trace import Trace

SLOW, SLOWER = 100, 30
"""windows of regimes in a trace, unless that leaves fewer than PER_WINDOW requests in each"""
PER_WINDOW, PER_SHORT_WINDOW = 30, 8
REGIMES: tuple[tuple[int, int | None], ...] = ((2, SLOW), (2, SLOWER), (4, SLOW), (4, SLOWER), (8, None))
"""numbers of regimes and of windows that are tried; None: windows as short as PER_SHORT_WINDOW requests, for bursts"""
CLIENT_ROWS = 300
"""requests from which a client has a stream of its own; the others share one"""
MOST_CLIENTS = 40
MOST_CV = 60.0


@dataclass(frozen=True)
class Candidate:
    """A model and what it is called on the screen."""

    name: str
    about: str
    model: TrafficModel
    key: str
    """the same for the same kind of model of another trace"""


def candidates(trace: Trace, start_s: float | None) -> Iterator[Candidate]:
    """From the smallest on. A trace without times, or of fewer than MIN_ROWS rows, has none."""
    begins = (start_s or 0.0) + float(trace.arrival_s[0])
    trace = replace(trace, arrival_s=trace.arrival_s - trace.arrival_s[0])
    hours = _hours(trace, begins)
    shape = Shape(hours=hours, start_s=begins) if hours else Shape()
    prompt, output = trace.prompt_tokens, trace.output_tokens
    table = (fit_mix(prompt, output),)
    flat = _unshaped(trace.arrival_s, shape)
    gaps = np.diff(flat)
    rate = len(gaps) / float(trace.arrival_s[-1] - trace.arrival_s[0])
    cv = float(min(gaps.std() / gaps.mean(), MOST_CV))

    def one(law: Gaps, lengths: tuple[Mix, ...], regimes: Regimes | None = None, kept: Shape = shape) -> TrafficModel:
        return TrafficModel((Stream("all", rate, law, lengths, regimes),), kept)

    raw = np.diff(trace.arrival_s)
    plain_cv = float(np.clip(raw.std() / raw.mean(), 0.02, MOST_CV))
    means = Pair(Constant(max(1, round(prompt.mean()))), Constant(max(1, round(output.mean()))))
    two = Pair(_lognormal(prompt), _lognormal(output))
    also = ", hours of the day" if hours else ""
    yield Candidate("means", "Poisson, every request of mean lengths", one(Gaps("poisson"), (means,), kept=Shape()), "means")
    yield Candidate("two", "gamma gaps; log-normal lengths, independent",
                    one(Gaps("gamma", plain_cv), (two,), kept=Shape()), "two")  # fmt: skip
    yield Candidate("poisson", f"Poisson{also}; length table", one(Gaps("poisson"), table), "poisson")
    yield Candidate("gamma", f"gamma gaps{also}; length table", one(Gaps("gamma", max(cv, 0.02)), table), "gamma")
    yield Candidate("gaps", f"table of gaps{also}; length table", one(gap_table(gaps), table), "gaps")
    for kinds, windows in REGIMES:
        found = regimes_of(flat, prompt, output, rate, kinds, windows)
        if found is not None:
            regimes, law, lengths = found
            told = f"{len(regimes.rate)} regimes of rate and lengths in windows of {regimes.window_s:,.3g} s"
            yield Candidate(f"regimes {len(regimes.rate)} × {regimes.window_s:,.3g} s", f"{told}, table of gaps{also}",
                            one(law, lengths, regimes), f"regimes {kinds}/{windows}")  # fmt: skip
    if (made := _by_client(trace, shape)) is not None:
        yield Candidate("clients", f"{len(made.streams)} streams of clients, each with gaps, regimes and lengths{also}", made,
                        "clients")  # fmt: skip


def _lognormal(values: np.ndarray) -> Lognormal:
    return Lognormal(float(values.mean()), max(float(values.std() / values.mean()), 1e-6))


def _hours(trace: Trace, start_s: float | None) -> tuple[float, ...]:
    """Factors of the hours of the day, where the trace is long enough to tell."""
    rates = by_hour(trace.arrival_s, start_s)
    if rates is None:
        return ()
    mean = sum(rates) / len(rates)
    return tuple(max(rate / mean, 1e-3) for rate in rates)


def _unshaped(arrival_s: np.ndarray, shape: Shape) -> np.ndarray:
    """Arrivals on the clock on which a shape's rate is constant, over the same span."""
    if shape.plain:
        return arrival_s
    first, last = float(arrival_s[0]), float(arrival_s[-1])
    edges = np.linspace(first, last, max(2, int((last - first) / 900.0) + 1))
    passed = np.concatenate([[0.0], np.cumsum(shape.factor((edges[1:] + edges[:-1]) / 2) * np.diff(edges))])
    return first + np.interp(arrival_s, edges, passed) * ((last - first) / passed[-1])


def regimes_of(
    arrival_s: np.ndarray, prompt: np.ndarray, output: np.ndarray, rate: float, kinds: int, windows: int | None
):
    """(Regimes, Gaps within them, mixes of lengths); None where the counts of windows do not differ beyond chance.

    Windows fall into kinds by their counts (least squares on square roots). Chance alone spreads counts too: by the gaps
    within regimes, whose part is taken out of the spread of the rates.
    """
    first, span = float(arrival_s[0]), float(arrival_s[-1] - arrival_s[0])
    window = PER_SHORT_WINDOW / rate if windows is None else max(span / windows, PER_WINDOW / rate)
    windows = int(span // window)
    if windows < 5 * kinds:
        return None
    place = np.minimum(((arrival_s - first) // window).astype(np.int64), windows - 1)
    counts = np.bincount(place, minlength=windows).astype(float)
    kind = _kinds(np.sqrt(counts), kinds)
    used = int(kind.max()) + 1
    if used < 2:
        return None
    level = np.array([counts[kind == k].mean() for k in range(used)]) / window
    gaps = _gaps_within(arrival_s, first, window, level[kind])
    if not len(gaps):
        return None
    law = gap_table(gaps)
    noise = min(float(law.cv) ** 2, 1e6) * counts.mean()
    kept = np.sqrt(max(0.0, 1 - noise / max(counts.var(), 1e-9)))
    if kept < 0.1:
        return None
    level = rate + (level - rate) * kept
    share = np.bincount(kind, minlength=used) / windows
    level = np.maximum(level, 1e-6 * rate)
    step = np.zeros((used, used))
    np.add.at(step, (kind, np.roll(kind, -1)), 1.0)  # the last window leads to the first: shares are those observed
    which, mixes = _mixes(kind[place], prompt, output, used)
    regimes = Regimes(window, level / float(share @ level), step / step.sum(axis=1, keepdims=True), which)
    return regimes, law, mixes


def _kinds(values: np.ndarray, kinds: int) -> np.ndarray:
    """Lloyd's iteration in one dimension from quantiles, int64[n], kinds in order of their values."""
    centres = np.unique(np.quantile(values, (np.arange(kinds) + 0.5) / kinds))
    for _ in range(100):
        which = np.abs(values[:, None] - centres).argmin(axis=1)
        moved = np.array([values[which == k].mean() for k in np.unique(which)])
        if len(moved) == len(centres) and np.allclose(moved, centres):
            break
        centres = moved
    _, which = np.unique(np.abs(values[:, None] - centres).argmin(axis=1), return_inverse=True)
    return which


def _gaps_within(arrival_s: np.ndarray, first: float, window: float, rates: np.ndarray) -> np.ndarray:
    """Gaps on the clock on which every window's rate is 1."""
    edges = first + np.arange(len(rates) + 1) * window
    passed = np.concatenate([[0.0], np.cumsum(rates * window)])
    return np.diff(np.interp(arrival_s, edges, passed)[: int(np.searchsorted(arrival_s, edges[-1]))])


def _mixes(kind: np.ndarray, prompt: np.ndarray, output: np.ndarray, used: int) -> tuple[np.ndarray, tuple[Mix, ...]]:
    """A length table for each kind of window whose lengths differ from the others' beyond chance; else one for all."""
    which, mixes = np.zeros(used, dtype=np.int64), []
    shared = None
    for k in range(used):
        mine = kind == k
        rows = int(mine.sum())
        noise = 1.63 * np.sqrt(1 / max(rows, 1) + 1 / max(len(kind) - rows, 1))  # what 1 % exceed
        differs = rows >= MIN_ROWS and len(kind) - rows >= MIN_ROWS and any(
            two_sample(column[mine], column[~mine]) > noise for column in (prompt, output)
        )
        if differs:
            which[k] = len(mixes)
            mixes.append(fit_mix(prompt[mine], output[mine]))
        else:
            if shared is None:
                shared = len(mixes)
                mixes.append(None)
            which[k] = shared
    if shared is not None:
        rest = np.isin(kind, np.flatnonzero(which == shared))
        some = rest if rest.any() else np.ones(len(kind), dtype=bool)
        mixes[shared] = fit_mix(prompt[some], output[some])
    return which, tuple(mixes)


def _by_client(trace: Trace, shape: Shape) -> TrafficModel | None:
    """A stream for each client (column tenant) with enough requests, one for all others; None where nobody is told."""
    names = trace.labels.get("tenant")
    if names is None:
        return None
    found, which, counts = np.unique(names.astype(str), return_inverse=True, return_counts=True)
    large = [int(i) for i in np.argsort(-counts, kind="stable")[:MOST_CLIENTS] if counts[i] >= CLIENT_ROWS]
    if len(found) < 2 or not large:
        return None
    own = np.full(len(found), -1)
    own[large] = np.arange(len(large))
    groups: list[tuple[str, np.ndarray]] = [(str(found[i]), which == i) for i in large]
    rest = own[which] < 0
    if rest.sum() >= MIN_ROWS:
        groups.append(("others", rest))
    span = float(trace.arrival_s[-1] - trace.arrival_s[0])
    streams = [_client(name, trace, mine, span, shape) for name, mine in groups]
    return TrafficModel(tuple(streams), shape)


def _client(name: str, trace: Trace, mine: np.ndarray, span: float, shape: Shape) -> Stream:
    times, prompt, output = _unshaped(trace.arrival_s, shape)[mine], trace.prompt_tokens[mine], trace.output_tokens[mine]
    rate = len(times) / span
    # gaps before the first request and after the last belong to the client too
    around = np.concatenate([[trace.arrival_s[0]], times, [trace.arrival_s[-1]]])
    if (found := regimes_of(around, np.append(np.insert(prompt, 0, prompt[0]), prompt[-1]),
                            np.append(np.insert(output, 0, output[0]), output[-1]), rate, 4, SLOW)):  # fmt: skip
        regimes, law, lengths = found
        return Stream(name, rate, law, lengths, regimes)
    return Stream(name, rate, gap_table(np.diff(times)), (fit_mix(prompt, output),))


