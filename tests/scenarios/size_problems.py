"""Random sizing problems, and how their answers do in runs ten times as long that no search has seen.

    python -m tests.scenarios.size_problems 60

prints a line a problem: the answer, replicas by means, utilisation, the attainment of the answer and of one replica less
over fresh runs, each with its 95 % interval over seeds, and the CPU seconds of the answer. Fresh runs are ten times as long
as what the scenario says, and as those that the answer was judged by (up to MOST_REQUESTS). The problems are the same in
every process. How a long run is judged is written here, apart from the planner: a share of rows, Student's t over runs.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from llmqsim import from_mapping
from llmqsim.metrics import slo
from llmqsim.planner.size import Effort
from llmqsim.planner.sizing import Question, size
from llmqsim.planner.vary import with_replicas
from llmqsim.simulation import Prepared, prepare

TIMES, MOST_REQUESTS = 10, 100_000
FIRST_SEED, RUNS = 70_000, 5
KINDS = ("plain", "short", "long", "bursty", "heavy", "classes", "prefixes", "closed")
T_95 = 2.776
"""Student's t at 97.5 % for RUNS, from a table"""


def problem(number: int) -> dict[str, Any]:
    """One problem as a scenario without a number of replicas, from ranges that people ask about; `name` is its kind."""
    draw = np.random.default_rng([2027, number])

    def between(low: float, high: float) -> float:
        return float(np.exp(draw.uniform(np.log(low), np.log(high))))

    def length(mean: float, cv: float, most: int) -> dict[str, Any]:
        return {"lognormal": {"mean": round(mean), "cv": cv}, "max": most}

    kind = KINDS[number % len(KINDS)]
    cv = [2.0, 3.0] if kind == "heavy" else [0.3, 0.7, 1.0, 1.5]
    prompt, output = between(150, 3000), between(40, 500)
    lengths = {
        "prompt": length(prompt, float(draw.choice(cv)), 24_000),
        "output": length(output, float(draw.choice(cv)), 6_000),
    }
    gpu = str(draw.choice(["h100-sxm", "a100-sxm-80gb", "l40s", "h200"]))
    speed = {"h100-sxm": 1.0, "h200": 1.2, "a100-sxm-80gb": 0.6, "l40s": 0.3}[gpu]
    rate = between(3, 25) * speed * 15_000 / (prompt / 2 + 8 * output)
    requests = {"short": (150, 1200), "long": (10_000, 25_000)}.get(kind, (2000, 8000))
    workload: dict[str, Any] = {"requests": round(between(*requests)), "lengths": lengths}
    if kind == "closed":
        think = between(0.5, 8)
        workload["arrivals"] = {
            "process": "closed_loop", "clients": round(max(8, rate * (think + 0.02 * output))),
            "think_time": {"exponential": {"mean": round(think, 3)}}, "ramp_up": round(think, 3),
        }  # fmt: skip
    elif kind == "bursty":
        workload["arrivals"] = {"process": "gamma", "rate": round(rate, 3), "cv": float(draw.choice([2.0, 3.0, 4.0]))}
    else:
        workload["arrivals"] = {"process": "poisson", "rate": round(rate, 3)}
    targets = {"ttft": round(between(0.4, 4), 3), "tpot": round(between(0.035, 0.12), 4)}
    attainment = float(draw.choice([0.9, 0.95, 0.99]))
    mapping = {
        "name": f"{kind} {number}",
        "model": "llama-3.1-8b",
        "gpu": gpu,
        "workload": workload,
        "routing": str(draw.choice(["round_robin", "least_outstanding"])),
        "slo": {**targets, "attainment": attainment},
        "run": {"seed": int(number)},
    }
    if kind == "classes":
        loose = {"e2e": round(10 * output * targets["tpot"] + 20, 2), "attainment": 0.9}
        workload["classes"] = {"chat": {"share": 0.7}, "batch": {"share": 0.3, "slo": loose}}
    if kind == "prefixes":
        shared = round(prompt * between(0.2, 0.8))
        workload["prefix"] = {"shared_tokens": max(16, shared), "groups": int(draw.choice([1, 8, 40]))}
        mapping["engine"] = {"enable_prefix_caching": True}
    return mapping


@dataclass(frozen=True)
class Held:
    """How a fleet does over fresh long runs: the objective with the least margin, with Student's interval."""

    share: float
    low: float
    high: float
    asked: float

    @property
    def keeps(self) -> bool:
        return self.share >= self.asked

    @property
    def doubtful(self) -> bool:
        """Does it not keep the target, or not for sure?"""
        return self.low < self.asked


def held(prepared: Prepared, replicas: int) -> Held:
    """Attainment of so many replicas over fresh runs."""
    servers, found = with_replicas(prepared, replicas), []
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        result = servers.run(seed, 0)
        seen = [(one.share, slo.stand(result, one)) for one in slo.objectives(result.promise, result.table.classes)]
        found.append([(asked, int(its.met.sum()), int(its.asked.sum())) for asked, its in seen])
    told = []
    for objective in zip(*found, strict=True):
        shares = np.array([met / asked for _, met, asked in objective if asked])
        half = T_95 * shares.std(ddof=1) / math.sqrt(len(shares))
        told.append(Held(float(shares.mean()), float(shares.mean() - half), float(shares.mean() + half), objective[0][0]))
    return min(told, key=lambda one: one.share - one.asked)


def solve(number: int) -> dict[str, Any] | None:
    """The answer to one problem with its fresh attainments; None where the problem has none."""
    mapping = problem(number)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.yaml"
        path.write_text(yaml.safe_dump(mapping))
        told = size(Question(path=str(path), effort=Effort(headroom=False)))
    seconds = time.process_time() - started
    found = {"problem": number, "kind": mapping["name"].split()[0], "verdict": told["verdict"], "reason": told["reason"],
             "seconds": seconds, "told": told}  # fmt: skip
    if told["verdict"] != "feasible":
        return found
    asked = mapping["workload"]["requests"]
    requests = max(TIMES * asked, min(TIMES * told["run_length"]["run"], MOST_REQUESTS))
    prepared = prepare(from_mapping(told["scenario"], sets=[f"workload.requests={requests}"]))
    found["replicas"], found["at"] = told["replicas"], held(prepared, told["replicas"])
    found["less"] = held(prepared, told["replicas"] - 1) if told["replicas"] > 1 else None
    return found


def line(found: dict[str, Any]) -> str:
    """A row of the table."""
    head = f"{found['problem']:4} {found['kind']:9}"
    if found["verdict"] != "feasible":
        return f"{head} {found['verdict']}: {found['reason']}"
    at, less, theory = found["at"], found["less"], found["told"]["theory"]
    told = f"{head}{at.asked:5.2f} {found['replicas']:4}{theory['replicas_by_means']!s:>5}"
    told += f"{theory['utilisation'] or math.nan:6.2f} {at.share:8.4f} [{at.low:.4f}, {at.high:.4f}] {'' if at.keeps else 'MISSES'}"
    if less is not None:
        told += f" less {less.share:8.4f} [{less.low:.4f}, {less.high:.4f}] {'' if less.doubtful else 'ENOUGH'}"
    return f"{told} {found['seconds']:6.1f} CPU s"


def main(problems: int) -> None:
    number, solved, others, started = 0, [], Counter(), time.process_time()
    while len(solved) < problems:
        found = solve(number)
        number += 1
        print(line(found), flush=True)
        if found["verdict"] == "feasible":
            solved.append(found)
        else:
            others[f"{found['verdict']} ({found['reason']})"] += 1
    several = [one for one in solved if one["less"] is not None]
    print(f"{number} problems drawn, {len(solved)} feasible; others: {dict(others)}")
    print(f"kinds: {dict(Counter(one['kind'] for one in solved))}")
    print(f"the answer keeps its target in runs {TIMES} times as long: {sum(o['at'].keeps for o in solved)} of {len(solved)}")
    doubtful = sum(o["less"].doubtful for o in several)
    print(f"one replica less does not, or not for sure: {doubtful} of {len(several)}; {len(solved) - len(several)} are one replica")
    seconds = sorted(o["seconds"] for o in solved)
    print(f"CPU s of an answer: median {np.median(seconds):.1f}, longest {seconds[-1]:.1f}; all: {time.process_time() - started:.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
