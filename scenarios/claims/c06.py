"""C06: where does a prefill and a decode GPU beat two that do both, and by how much? Prints the claims; --json as data.

Searched with seed 0, confirmed with seeds 1 and 2. Goodput: the highest rate at which 90 % of the requests meet both
targets. TTFT: means of both deployments at the same rate, the highest that the pair keeps.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "disaggregation"))
from goodput import RATE, at_rate, goodput, grid, latencies  # noqa: E402

from llmqsim import load, simulate  # noqa: E402

SCENARIO = str(HERE / "c06.yaml")
PROMPTS, OUTPUTS = (1000, 2000, 4000, 8000), (64, 128, 256, 512)
SLOS = [(ttft, tpot) for ttft in (0.5, 1.0, 2.0) for tpot in (0.010, 0.015, 0.025, 0.050)]
GOODPUT, TTFT = (1.3, 2.2), 0.6
"""rise of goodput, and what TTFT has to fall to"""
CONFIRM = (1, 2)
SATURATED = 1e4
"""req/s: all arrive at once"""


def lengths(prompt: int, output: int) -> dict:
    """The workload of a point of the grid."""
    return {"workload.lengths.prompt.lognormal.mean": prompt, "workload.lengths.output.lognormal.mean": output}


def rates(variant: str | None, sets: dict, slos: list, seed: int = 0) -> dict:
    """Goodput under each SLO."""
    return goodput(SCENARIO, slos, grid(0.5, 150, 1.2), variant=variant, sets=sets, seed=seed)


def ttft_ratio(sets: dict, rate: float, seed: int) -> float:
    """Mean TTFT of the pair over that of two that do both, at one rate."""
    both = (load(SCENARIO, variant=variant, sets={**sets, **at_rate(rate)}) for variant in (None, "colocated"))
    split, colocated = (float(np.mean(latencies(scenario, seed)[0])) for scenario in both)
    return split / colocated


def saturated(variant: str | None, sets: dict) -> float:
    """Tokens per second with all requests there at once."""
    result = simulate(load(SCENARIO, variant=variant, sets={**sets, RATE: SATURATED}))
    return result.summary()["throughput"]["total_tokens_per_s"]


def holds(goodput_ratio: float, ttft: float) -> bool:
    """Is it what is quoted?"""
    return GOODPUT[0] <= goodput_ratio <= GOODPUT[1] and ttft <= TTFT


def search() -> list[dict]:
    """Every workload and SLO of the grid that either deployment keeps at some rate."""
    found = []
    for prompt in PROMPTS:
        for output in OUTPUTS:
            sets = lengths(prompt, output)
            split, colocated = rates(None, sets, SLOS), rates("colocated", sets, SLOS)
            for slo in SLOS:
                if split[slo] > 0 and colocated[slo] > 0:
                    ratio = split[slo] / colocated[slo]
                    ttft = ttft_ratio(sets, split[slo], 0) if ratio > 1 else float("nan")
                    found.append({"prompt": prompt, "output": output, "slo": slo, "goodput": ratio, "ttft": ttft})
                elif split[slo] > 0 or colocated[slo] > 0:
                    only = float("inf") if split[slo] > 0 else 0.0
                    found.append({"prompt": prompt, "output": output, "slo": slo, "goodput": only, "ttft": float("nan")})
            print(f"{prompt} + {output} tokens searched", file=sys.stderr, flush=True)
    return found


def confirm(point: dict) -> list[tuple[float, float]]:
    """The same point with other seeds: (goodput ratio, TTFT ratio) of each."""
    sets, slo = lengths(point["prompt"], point["output"]), point["slo"]
    seen = []
    for seed in CONFIRM:
        split, colocated = (rates(variant, sets, [slo], seed)[slo] for variant in (None, "colocated"))
        seen.append((split / colocated if colocated else float("inf"), ttft_ratio(sets, split, seed) if split else np.nan))
    return seen


def claims() -> list[dict]:
    """The claims, as `llmqsim claims` lists them."""
    found = search()
    wins = [point for point in found if point["goodput"] > 1]
    quoted = sorted((p for p in found if holds(p["goodput"], p["ttft"])), key=lambda p: abs(p["goodput"] - 1.75))
    tried = ((point, confirm(point)) for point in quoted[:6])
    confirmed = next(((point, seen) for point, seen in tried if all(holds(*pair) for pair in seen)), None)
    worst = min(found, key=lambda point: point["goodput"])
    heavy = [(prompt, output) for prompt in PROMPTS for output in OUTPUTS if prompt >= 8 * output]
    rise = max(saturated(None, lengths(*at)) / saturated("colocated", lengths(*at)) for at in heavy)
    grid_of = f"of {len(found)} workloads and SLOs that either keeps (prompts {PROMPTS}, outputs {OUTPUTS})"
    where = "nowhere in the grid"
    if confirmed:
        at = confirmed[0]
        where = f"prompts of {at['prompt']:,} and answers of {at['output']} tokens, TTFT {at['slo'][0]:g} s, TPOT {at['slo'][1]:g} s"
    values = [pair[0] for pair in confirmed[1]] if confirmed else []
    falls = [pair[1] for pair in confirmed[1]] if confirmed else []
    return [
        _claim("goodput of a pair over two that do both", 2100 / 1200, values, *GOODPUT, f"{where}; seeds {CONFIRM}"),
        _claim("its mean TTFT over theirs, at the same rate", 350 / 800, falls, 0.0, TTFT, where),
        _claim("share of the grid where the pair wins at all", None, [len(wins) / len(found)], 0.0, 1.0, grid_of),
        _claim("share of the grid where it wins as quoted", None, [len(quoted) / len(found)], 0.0, 1.0, grid_of),
        _claim("saturated throughput without an SLO, largest rise", None, [rise], 0.0, 1.1, f"prompt-heavy workloads: {heavy}"),
        _claim(
            "a counter-case: goodput where it loses most", None, [worst["goodput"]], 0.0, 1.0,
            f"prompts of {worst['prompt']:,} and answers of {worst['output']} tokens, TTFT {worst['slo'][0]:g} s, "
            f"TPOT {worst['slo'][1]:g} s",
        ),
    ]  # fmt: skip


def _claim(check: str, published: float | None, simulated: list[float], low: float, high: float, assumption: str) -> dict:
    """One line; simulated is the mean where several seeds confirm it."""
    value = float(np.mean(simulated)) if simulated else None
    return {
        "id": "C06",
        "check": check,
        "published": published,
        "simulated": value,
        "low": low,
        "high": high,
        "holds": bool(simulated) and all(low <= one <= high for one in simulated),
        "assumption": assumption,
    }


def main() -> None:
    found = claims()
    if "--json" in sys.argv:
        print(json.dumps({"claims": found}, indent=1))
        return
    for claim in found:
        said = "–" if claim["simulated"] is None else f"{claim['simulated']:.2f}"
        quoted = "" if claim["published"] is None else f" (published {claim['published']:.2f})"
        print(f"{claim['check']}: {said}{quoted}, {'holds' if claim['holds'] else 'does not hold'}; {claim['assumption']}")


if __name__ == "__main__":
    main()
