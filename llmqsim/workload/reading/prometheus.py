"""Two scrapes of vLLM's metrics: how many requests came between them, and how long they were; the rest is drawn.

Counters and histograms only grow, so what happened between two scrapes is their difference. Buckets say how many
requests were at most so long, and the sum of all lengths, which fixes where in the buckets they lie. When each came,
and which prompt went with which answer, is in no metric.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from llmqsim import rng
from llmqsim.errors import DataError
from llmqsim.workload.length_table import Histogram
from llmqsim.workload.reading.options import How
from llmqsim.workload.reading.sheet import Sheet, number
from llmqsim.workload.reading.stream import whole

SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?\s*$")
LE = re.compile(r'(?:^|,)\s*le="([^"]*)"')
PROMPT, OUTPUT = "vllm:request_prompt_tokens", "vllm:request_generation_tokens"
DRAWN = (
    "requests are drawn from two scrapes: how many came and how long prompts and outputs were is measured; when each "
    "came (Poisson), where in a bucket a length lies, and that outputs don't depend on prompts is assumed"
)


@dataclass
class Scrape:
    """Histograms by name: {upper end: requests up to it}, sums, and the time of the samples, s, where they have one."""

    buckets: dict[str, dict[float, float]]
    sums: dict[str, float]
    time_s: float | None


def read_prometheus(path: str, what: str, how: How) -> Sheet:
    """Requests between two scrapes, drawn with how.seed. Raises DataError where there are no two, or they don't fit."""
    scrapes = _scrapes(path, what)
    if how.second:
        scrapes = [scrapes[0], _scrapes(how.second, what)[0]]
    if len(scrapes) < 2:
        raise DataError(
            f"{path}: is one scrape of Prometheus metrics, whose counters began when the server did; a second scrape "
            "says what came between: `llmqsim workload convert FIRST OUT.csv --second SECOND --seconds N`"
        )
    first, last = scrapes[0], scrapes[-1]
    seconds = how.seconds
    if not seconds and first.time_s is not None and last.time_s is not None:
        seconds = last.time_s - first.time_s
    if not 0 < seconds < math.inf:
        raise DataError(f"{path}: its samples carry no time stamps; state the time between the scrapes: --seconds N")
    columns = [_lengths(path, first, last, name) for name in (PROMPT, OUTPUT)]
    count = min(columns[0][1], columns[1][1])
    if count < 1:
        raise DataError(f"{path}: no request ended between the two scrapes; take them further apart")
    draw = rng.stream(how.seed, 0, "prometheus")
    arrival_s = np.sort(draw.random(count)) * seconds
    prompt, output = (histogram.quantile(draw.permutation((np.arange(count) + 0.5) / count)) for histogram, _ in columns)
    notes = [f"{DRAWN}; seed {how.seed}", f"{count:,} requests ended in {seconds:,.6g} s"]
    names = ("arrival_s", PROMPT, OUTPUT)
    return Sheet(path, names, arrival_s, prompt.astype(float), output.astype(float), notes=notes)


def _scrapes(path: str, what: str) -> list[Scrape]:
    """A new scrape begins where a sample comes again."""
    found: list[Scrape] = []
    seen: set[str] = set()
    for line, text in enumerate(whole(path, what).split("\n"), 1):
        if not text.strip() or text.startswith("#"):
            continue
        match = SAMPLE.match(text)
        if match is None:
            raise DataError(f"{path}:{line}: is no sample of Prometheus' text format (got '{text[:60]}')")
        name, labels, value, stamp = match.groups()
        series = f"{name}{{{labels}}}"
        if not found or series in seen:
            found.append(Scrape({}, {}, None))
            seen = set()
        seen.add(series)
        _take(found[-1], name, labels or "", value, stamp, f"{path}:{line}")
    if not found or not any(one.buckets for one in found):
        raise DataError(f"{path}: has no histogram {PROMPT}_bucket; vLLM's own metrics were expected (its /metrics page)")
    return found


def _take(scrape: Scrape, name: str, labels: str, value: str, stamp: str | None, place: str) -> None:
    base, _, part = name.rpartition("_")
    if base not in (PROMPT, OUTPUT):
        return
    amount = number(value)
    if not math.isfinite(amount):
        raise DataError(f"{place}: {name}: must be a number (got '{value[:40]}')")
    if stamp is not None:
        scrape.time_s = int(stamp) / 1e3
    if part == "sum":
        scrape.sums[base] = scrape.sums.get(base, 0.0) + amount
    elif part == "bucket":
        end = LE.search(labels)
        if end is None:
            raise DataError(f"{place}: {name}: a bucket needs the label le")
        bucket = scrape.buckets.setdefault(base, {})
        upper = number(end.group(1))
        if not upper >= 0:
            raise DataError(f"{place}: {name}: le must be a number of tokens (got '{end.group(1)[:40]}')")
        bucket[upper] = bucket.get(upper, 0.0) + amount


def _lengths(path: str, first: Scrape, last: Scrape, name: str) -> tuple[Histogram, int]:
    """What came between two scrapes, and how many."""
    before, after = first.buckets.get(name, {}), last.buckets.get(name)
    if not after:
        raise DataError(f"{path}: the last scrape has no histogram {name}")
    uppers = sorted(after)
    counts = np.diff([after[upper] - before.get(upper, 0.0) for upper in uppers], prepend=0.0)
    if (counts < 0).any():
        raise DataError(f"{path}: {name}: counts fall between the scrapes: the server restarted, or their order is wrong")
    finite = [upper for upper in uppers if math.isfinite(upper)]
    ends = np.array([math.floor(u) if math.isfinite(u) else 2 * (finite[-1] if finite else 1) for u in uppers])
    low = np.maximum(np.concatenate([[0], ends[:-1]]) + 1, 1).astype(np.int64)
    high = np.maximum(ends, low).astype(np.int64)
    used = counts > 0
    total = last.sums.get(name, 0.0) - first.sums.get(name, 0.0)
    low, high, counts = low[used], high[used], counts[used]
    if not len(counts):
        return Histogram(np.ones(1, np.int64), np.ones(1, np.int64), np.ones(1), np.ones(1)), 0
    spread = float(((high - low) * counts).sum())
    share = np.clip((total - float((low * counts).sum())) / spread, 0.0, 1.0) if spread and total else 0.5
    return Histogram(low, high, counts, low + share * (high - low)), int(counts.sum())
