"""Random sizing problems, and how their answers do in replications that no search has seen.

    python -m tests.scenarios.size_problems 30

prints a line a problem: the answer, the attainment of the answer and of one replica less over fresh replications, and how
many of these replications keep the target each. The problems are the same in every process.
"""

from __future__ import annotations

import sys

import numpy as np

from llmqsim import from_mapping
from llmqsim.metrics import slo
from llmqsim.planner.size import Effort
from llmqsim.planner.sizing import Question, size
from llmqsim.planner.vary import with_replicas
from llmqsim.simulation import Prepared, prepare

FRESH = range(70_000, 70_020)


def problem(number: int) -> dict[str, str]:
    """Flags of one problem: model, GPU, traffic and targets from ranges that people ask about."""
    draw = np.random.default_rng([2026, number])

    def between(low: float, high: float) -> float:
        return float(np.exp(draw.uniform(np.log(low), np.log(high))))

    return {
        "model": "llama-3.1-8b",
        "gpu": str(draw.choice(["h100-sxm", "a100-sxm-80gb", "l40s", "h200"])),
        "rate": f"{between(3, 40):.2f}",
        "in": f"{between(150, 3000):.0f}:{draw.choice([0.3, 0.7, 1.0, 1.5])}",
        "out": f"{between(40, 500):.0f}:{draw.choice([0.3, 0.7, 1.0, 1.5])}",
        "arrival_cv": str(draw.choice([1.0, 1.0, 2.0])),
        "ttft": f"{between(400, 4000):.0f}ms",
        "tpot": f"{between(35, 120):.0f}ms",
        "attainment": str(draw.choice([0.9, 0.95, 0.99])),
        "routing": str(draw.choice(["round_robin", "least_outstanding"])),
    }


def fresh(prepared: Prepared, replicas: int) -> tuple[float, float]:
    """Attainment over all fresh replications, and the share of them that keep the target one by one."""
    servers, met, asked, kept = with_replicas(prepared, replicas), 0, 0, 0
    for replication in FRESH:
        result = servers.run(0, replication)
        (one,) = slo.objectives(result.promise, result.table.classes)
        told = slo.kept(result.table, one, result.measured)
        kept += bool(told["met"])
        rows = one.asked(result.table, result.measured)
        met, asked = met + int((one.met(result.table) & rows).sum()), asked + int(rows.sum())
    return met / asked, kept / len(FRESH)


def solve(number: int) -> dict | None:
    """The answer to one problem with its fresh attainments; None where the problem has none."""
    told = size(Question(flags=problem(number), effort=Effort(headroom=False)))
    if told["verdict"] != "feasible":
        return None
    prepared = prepare(from_mapping(told["scenario"]))
    asked = told["attainment"]["asked"]
    found = {"problem": number, "replicas": told["replicas"], "asked": asked, "seconds": told["seconds"], "low": told["attainment"]["low"]}
    found["at"], found["runs_kept"] = fresh(prepared, told["replicas"])
    if told["one_less"] is not None:
        found["less"], found["less_runs_kept"] = fresh(prepared, told["replicas"] - 1)
        found["less_judged"] = told["one_less"]["judged"]
    found["by_means"] = told["theory"]["replicas_by_means"]
    return found


def main(problems: int) -> None:
    number, solved = 0, []
    print("problem  asked  replicas  by means  attained  runs kept  one less  runs kept  judged")
    while len(solved) < problems:
        found = solve(number)
        number += 1
        if found is None:
            continue
        solved.append(found)
        less = f"{found['less']:9.4f} {found['less_runs_kept']:10.2f}  {found['less_judged']}" if "less" in found else "        –"
        print(
            f"{found['problem']:7} {found['asked']:6.2f} {found['replicas']:9} {found['by_means']!s:>9} {found['at']:9.4f} "
            f"{found['runs_kept']:10.2f} {less}", flush=True,
        )  # fmt: skip
    several = [one for one in solved if "less" in one]
    print(f"{number} problems drawn, {len(solved)} feasible")
    print(f"the answer meets the target in fresh replications: {sum(o['at'] >= o['asked'] for o in solved)} of {len(solved)}")
    print(f"single fresh replications that meet it: {np.mean([o['runs_kept'] for o in solved]):.3f} of them")
    print(f"one replica less does not: {sum(o['less'] < o['asked'] for o in several)} of {len(several)}")
    print(f"longest: {max(o['seconds'] for o in solved):.1f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
