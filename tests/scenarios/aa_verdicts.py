"""How often `compare` calls differences that are not there, and one twice as large as it says it would call.

    python -m tests.scenarios.aa_verdicts 200

A/A: pairs of variants that differ by chance alone (aa_families.py), judged from one run of 4,000 requests and from ten
replications of 500. What is exactly alike in both is in no share: it can't be called. Power: one of the two has every
step slowed down a little; the true difference of a figure is its mean over all seeds. Counted are those comparisons
where it is two to three times the smallest difference that the A/A comparison of the same seed would have seen.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmqsim.metrics import stats
from llmqsim.planner.compare import GROUP_METRICS, compare_prepared
from llmqsim.planner.figures import DEFAULT, HIGHER, metrics
from llmqsim.planner.verdict import BETTER, HIGH, LOW, UNCLEAR, WORSE
from tests.scenarios.aa_families import FAMILIES, Family, pair

FIGURES = metrics((
    *DEFAULT, "ttft_s.p50", "ttft_s.p90", "ttft_s.p95", "tpot_s.p50", "e2e_s.p50", "e2e_s.p90", "itl_s.mean",
    "itl_s.p99", "throughput.requests_per_s",
))  # fmt: skip
FROM = {"one run": (1, 4000), "ten replications": (10, 500)}
"""replications, requests of each"""
SLOWER = (0.01, 0.02, 0.04, 0.08, 0.16)
CLASS_TIMES = 3
"""times as many seeds of families with classes, which alone have cells by class"""
PLANTED = (2, 3)
"""times the smallest difference that would have been seen"""
CALLED = (BETTER, WORSE, HIGH, LOW)
Place = tuple[str, str | None]
"""a figure and the group of requests that it is of"""


@dataclass
class Count:
    """Of each comparison: figures that differ, those with an interval, false verdicts, and those without a verdict."""

    differ: list[int] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)
    false: list[int] = field(default_factory=list)
    silent: list[int] = field(default_factory=list)

    def add(self, cells: list[dict[str, Any]]) -> None:
        """One comparison's cells of this kind."""
        self.differ.append(len(cells))
        self.judged.append(sum(c["low"] is not None for c in cells))
        self.false.append(sum(c["verdict"] in CALLED for c in cells))
        self.silent.append(sum(c["verdict"] == UNCLEAR for c in cells))

    def rate(self) -> stats.Interval | None:
        """False verdicts among figures with an interval. Figures of one comparison hang together, so comparisons are
        what is sampled: they take the place of replications."""
        return stats.share_interval(self.false, self.judged) if sum(self.judged) else None

    def refused(self) -> float:
        """Share without a verdict."""
        return sum(self.silent) / max(sum(self.differ), 1)


def kind(place: Place) -> str:
    """What a figure is pooled with."""
    key, group = place
    statistic = key.rpartition(".")[2]
    if group is not None:
        return f"cells by {group.split(':')[0]}, {'P99' if statistic == 'p99' else 'means and shares'}"
    if key.endswith("_per_s"):
        return "goodput and throughput"
    if key in ("attainment", "preemptions"):
        return key
    if key == "fairness":
        return "Jain fairness"
    return {"mean": "means", "p99": "P99"}.get(statistic, "P50 to P95")


def cells(told: dict[str, Any]) -> dict[Place, dict[str, Any]]:
    """Every figure that was judged, of all requests and of each group."""
    found = {(key, None): cell for key, cell in told["differences"]["b"].items()}
    for group, its in told["groups"].items():
        found |= {(key, group): cell for key, cell in its["variants"]["b"]["figures"].items()}
    return {place: cell for place, cell in found.items() if cell is not None}


class Bench:
    """Comparisons of one family, from one run or from many; servers are built once."""

    def __init__(self, family: Family, way: str, slower: float = 0.0):
        self.runs, requests = FROM[way]
        self.prepared = pair(family, requests, slower)

    def compared(self, seed: int) -> dict[Place, dict[str, Any]]:
        """One comparison."""
        return cells(compare_prepared(self.prepared, self.runs, FIGURES, seed))


def alike(
    families: tuple[Family, ...], seeds: int, ways: tuple[str, ...] = tuple(FROM)
) -> dict[tuple[str, str, str], Count]:
    """Counts by way, family and kind."""
    counts: dict[tuple[str, str, str], Count] = defaultdict(Count)
    for family, way, told in _each(families, seeds, ways):
        by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for place, cell in told.items():
            if cell["difference"]:
                by_kind[kind(place)].append(cell)
        for name, found in by_kind.items():
            counts[way, family.name, name].add(found)
    return counts


def _each(
    families: tuple[Family, ...], seeds: int, ways: tuple[str, ...]
) -> Iterator[tuple[Family, str, dict[Place, dict[str, Any]]]]:
    for family in families:
        started = time.process_time()
        for way in ways:
            bench = Bench(family, way)
            more = CLASS_TIMES if "classes" in family.scenario["workload"] else 1
            yield from ((family, way, bench.compared(seed)) for seed in range(more * seeds))
        print(f"# {family.name}: {time.process_time() - started:.0f} CPU s", file=sys.stderr, flush=True)


def pooled(counts: dict[tuple[str, str, str], Count], by: int) -> dict[tuple[str, str], Count]:
    """By way and kind (by: 2) or family (by: 1)."""
    found: dict[tuple[str, str], Count] = defaultdict(Count)
    for key, one in counts.items():
        whole = found[key[0], key[by]]
        for name in ("differ", "judged", "false", "silent"):
            getattr(whole, name).extend(getattr(one, name))
    return found


def power(
    families: tuple[Family, ...], seeds: int, ways: tuple[str, ...] = tuple(FROM)
) -> dict[tuple[str, str], list[bool]]:
    """Was a planted difference called, and in its direction? By way and kind."""
    found: dict[tuple[str, str], list[bool]] = defaultdict(list)
    better = {m.key: m.better for m in metrics([*(m.key for m in FIGURES), *GROUP_METRICS])}
    for family in families:
        for way in ways:
            bench = Bench(family, way)
            seen = [{p: c["smallest_seen"] for p, c in bench.compared(s).items()} for s in range(seeds)]
            for slower in SLOWER:
                bench = Bench(family, way, slower)
                runs = [bench.compared(s) for s in range(seeds)]
                for place in set.intersection(*(set(run) for run in runs)):
                    truth = float(np.mean([run[place]["difference"] for run in runs]))
                    right = BETTER if (truth > 0) == (better[place[0]] == HIGHER) else WORSE
                    for smallest, run in zip(seen, runs, strict=True):
                        least = smallest.get(place)
                        if least and PLANTED[0] <= abs(truth) / least < PLANTED[1]:
                            found[way, kind(place)].append(run[place]["verdict"] == right)
    return found


def table(counts: dict[tuple[str, str], Count]) -> list[str]:
    """Markdown: false verdicts with their interval, and what has no verdict, for both ways."""
    heads = " | ".join(f"{way}: false | no verdict" for way in FROM)
    rows = [f"| | {heads} |", "| --- |" + " --- |" * 2 * len(FROM)]
    for name in dict.fromkeys(key[1] for key in counts):
        shown = []
        for way in FROM:
            one = counts.get((way, name))
            rate = one.rate() if one is not None else None
            shown.append("–" if rate is None else _per_cent(rate))
            shown.append("–" if one is None else f"{100 * one.refused():.0f}")
        rows.append(f"| {name} | " + " | ".join(shown) + " |")
    return rows


def _per_cent(rate: stats.Interval) -> str:
    low, high = rate.low or 0.0, 1.0 if rate.high is None else rate.high
    return f"{100 * rate.mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def power_table(found: dict[tuple[str, str], list[bool]]) -> list[str]:
    """Markdown: per cent called, and of how many."""
    heads = " | ".join(f"{way}: called | of" for way in FROM)
    rows = [f"| | {heads} |", "| --- |" + " --- |" * 2 * len(FROM)]
    for name in dict.fromkeys(key[1] for key in found):
        shown = []
        for way in FROM:
            hits = found.get((way, name), [])
            shown += [f"{100 * np.mean(hits):.0f}" if hits else "–", f"{len(hits):,}"]
        rows.append(f"| {name} | " + " | ".join(shown) + " |")
    return rows


def main(seeds: int, planted: int) -> None:
    """Print all tables."""
    counts = alike(FAMILIES, seeds)
    by_family = ["", "by family", *table(pooled(counts, 1))]
    print("\n".join(["A/A, per cent, by figure", *table(pooled(counts, 2)), *by_family]))
    if planted:
        found = power(FAMILIES, planted)
        print("\n".join(["", "planted differences of 2 to 3 times the smallest", *power_table(found)]))


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    main(number, int(sys.argv[2]) if len(sys.argv) > 2 else number // 7)
