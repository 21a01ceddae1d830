"""How often 95 % intervals hold the truth on an LLM server: of single long runs, and over replications.

    python -m tests.scenarios.interval_coverage 200

The truth is the mean over all runs, so it is known far better than any of them.
"""

from __future__ import annotations

import sys

import numpy as np

from llmqsim import from_mapping
from llmqsim.metrics import slo, stats
from llmqsim.planner.attain import of_one_run
from llmqsim.simulation import prepare

SERVICE = {
    "workload": {
        "requests": 3000,
        "arrivals": {"process": "poisson", "rate": 5.5},
        "lengths": {"prompt": {"lognormal": {"mean": 800, "cv": 1}}, "output": {"lognormal": {"mean": 100, "cv": 1}}},
    },
    "model": "llama-3.1-8b",
    "gpu": "a100-sxm-80gb",
    "engine": {"max_num_seqs": 16},
    "slo": {"ttft": 0.5, "tpot": 0.05},
}
"""16 slots, some 70 % busy: a queue comes and goes"""
GROUP = 5
"""replications in an interval over replications"""


def coverage(runs: int) -> dict[str, float]:
    """Share of intervals that hold the truth, by name."""
    prepared, series, met = prepare(from_mapping(SERVICE)), [], []
    for replication in range(runs):
        result = prepared.run(0, replication)
        table, rows = result.table, result.measured
        series.append({"ttft": (table.first_token_ns - table.arrival_ns)[rows] / 1e9, "e2e": (table.finish_ns - table.arrival_ns)[rows] / 1e9})
        met.append(slo.stand_all(result).met[rows])
    found: dict[str, float] = {}
    for name in ("ttft", "e2e"):
        means = np.array([run[name].mean() for run in series])
        found[f"{name} mean, one run"] = _covers([stats.batch_means(run[name], cut=False) for run in series], means.mean())
        groups = [stats.t_interval(means[i : i + GROUP]) for i in range(0, runs - GROUP + 1, GROUP)]
        found[f"{name} mean, {GROUP} runs"] = _covers(groups, means.mean())
        p90 = float(np.percentile(np.concatenate([run[name] for run in series]), 90))
        found[f"{name} p90, one run"] = _covers([stats.quantile_interval(run[name], 90) for run in series], p90)
    share = float(np.concatenate(met).mean())
    found["attainment, one run"] = _covers([of_one_run(run) for run in met], share)
    hits, totals = [int(run.sum()) for run in met], [len(run) for run in met]
    groups = [stats.share_interval(hits[i : i + GROUP], totals[i : i + GROUP]) for i in range(0, runs - GROUP + 1, GROUP)]
    found[f"attainment, {GROUP} runs"] = _covers(groups, share)
    found["attainment"] = share
    return found


def _covers(intervals: list, truth: float) -> float:
    known = [i for i in intervals if i is not None and i.low is not None]
    return float(np.mean([i.low <= truth <= i.high for i in known]))


if __name__ == "__main__":
    for name, share in coverage(int(sys.argv[1]) if len(sys.argv) > 1 else 200).items():
        print(f"{name:<24} {share:.3f}")
