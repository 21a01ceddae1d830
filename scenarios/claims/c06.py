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
PROMPTS, OUTPUTS = (2000, 4000, 8000), (64, 128, 256)
SLOS = [(ttft, tpot) for ttft in (0.5, 1.0, 2.0) for tpot in (0.008, 0.010, 0.015, 0.025)]
BASELINES = ("colocated", "small_chunks")
"""two that do both: with the engine's own token budget (8,192 on H100), and with one of 512 that spares the answers"""
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
    return goodput(SCENARIO, slos, grid(0.6, 100, 1.25), variant=variant, sets=sets, seed=seed)


def ttft_ratio(baseline: str, sets: dict, rate: float, seed: int) -> float:
    """Mean TTFT of the pair over that of two that do both, at one rate."""
    both = (load(SCENARIO, variant=variant, sets={**sets, **at_rate(rate)}) for variant in (None, baseline))
    split, colocated = (float(np.mean(latencies(scenario, seed)[0])) for scenario in both)
    return split / colocated


def saturated(variant: str | None, sets: dict) -> float:
    """Tokens per second with all requests there at once."""
    result = simulate(load(SCENARIO, variant=variant, sets={**sets, RATE: SATURATED}))
    return result.summary()["throughput"]["total_tokens_per_s"]


def search() -> list[dict]:
    """Every workload and SLO of the grid that either deployment keeps at some rate."""
    found = []
    for prompt in PROMPTS:
        for output in OUTPUTS:
            sets = lengths(prompt, output)
            split = rates(None, sets, SLOS)
            for baseline in BASELINES:
                both = rates(baseline, sets, SLOS)
                at = {"prompt": prompt, "output": output, "baseline": baseline}
                found += [{**at, **_compared(baseline, sets, slo, split[slo], both[slo])} for slo in SLOS if split[slo] or both[slo]]
            print(f"{prompt} + {output} tokens searched", file=sys.stderr, flush=True)
    return found


def _compared(baseline: str, sets: dict, slo: tuple[float, float], split: float, both: float) -> dict:
    """Goodput and TTFT of the pair over those of a baseline; TTFT where the pair wins."""
    ratio = split / both if both else float("inf")
    ttft = ttft_ratio(baseline, sets, split, 0) if 1 < ratio < float("inf") else float("nan")
    return {"slo": slo, "goodput": ratio, "ttft": ttft}


def confirm(point: dict) -> list[tuple[float, float]]:
    """The same point with other seeds: (goodput ratio, TTFT ratio) of each."""
    sets, slo, baseline = lengths(point["prompt"], point["output"]), point["slo"], point["baseline"]
    seen = []
    for seed in CONFIRM:
        split, colocated = (rates(variant, sets, [slo], seed)[slo] for variant in (None, baseline))
        ratio = split / colocated if colocated else float("inf")
        seen.append((ratio, ttft_ratio(baseline, sets, split, seed) if split else float("nan")))
    return seen


def claims() -> list[dict]:
    """The claims, as `llmqsim claims` lists them."""
    found = search()
    wins = [point for point in found if point["goodput"] > 1]
    rises = [point for point in wins if GOODPUT[0] <= point["goodput"] <= GOODPUT[1]]
    quoted = [point for point in rises if point["ttft"] <= TTFT]
    # where nothing is as quoted: the rise of goodput that is nearest to the published one
    at = min(quoted or rises or wins or found, key=lambda point: abs(point["goodput"] - 2100 / 1200))
    seen = confirm(at)
    worst = min(found, key=lambda point: point["goodput"])
    heavy = [(prompt, output) for prompt in PROMPTS for output in OUTPUTS if prompt >= 8 * output]
    rise = max(saturated(None, lengths(*pair)) / saturated("colocated", lengths(*pair)) for pair in heavy)
    grid_of = f"of {len(found)} workloads and SLOs that either keeps (prompts {PROMPTS}, outputs {OUTPUTS}, {BASELINES})"
    where = (
        f"prompts of {at['prompt']:,} and answers of {at['output']} tokens, TTFT {at['slo'][0]:g} s, TPOT {at['slo'][1]:g} s, "
        f"against {at['baseline']}; found with seed 0, of seeds {CONFIRM}"
    )
    values, falls = [pair[0] for pair in seen], [pair[1] for pair in seen]
    return [
        _claim("goodput of a pair over two that do both", 2100 / 1200, values, *GOODPUT, where),
        _claim("its mean TTFT over theirs, at the same rate", 350 / 800, falls, 0.0, TTFT, where),
        _claim("share of the grid where the pair wins at all", None, [len(wins) / len(found)], None, None, grid_of),
        _claim("share of the grid where goodput rises as quoted", None, [len(rises) / len(found)], None, None, grid_of),
        _claim("share of the grid where TTFT falls as quoted, too", None, [len(quoted) / len(found)], None, None, grid_of),
        _claim("saturated throughput without an SLO, largest rise", None, [rise], 0.0, 1.1, f"prompt-heavy workloads: {heavy}"),
        _claim(
            "a counter-case: goodput where it loses most", None, [worst["goodput"]], 0.0, 1.0,
            f"prompts of {worst['prompt']:,} and answers of {worst['output']} tokens, TTFT {worst['slo'][0]:g} s, "
            f"TPOT {worst['slo'][1]:g} s, against {worst['baseline']}",
        ),
    ]  # fmt: skip


def _claim(
    check: str, published: float | None, simulated: list[float], low: float | None, high: float | None, assumption: str
) -> dict:
    """One line; simulated is the mean over seeds, each of which must hold. Without a band it is told, not judged."""
    return {
        "id": "C06",
        "check": check,
        "published": published,
        "simulated": float(np.mean(simulated)),
        "low": low,
        "high": high,
        "holds": None if low is None else all(low <= one <= high for one in simulated),
        "assumption": assumption,
    }


def main() -> None:
    found = claims()
    if "--json" in sys.argv:
        print(json.dumps({"claims": found}, indent=1))
        return
    for claim in found:
        quoted = "" if claim["published"] is None else f" (published {claim['published']:.2f})"
        judged = {True: ", holds", False: ", does not hold", None: ""}[claim["holds"]]
        print(f"{claim['check']}: {claim['simulated']:.2f}{quoted}{judged}; {claim['assumption']}")


if __name__ == "__main__":
    main()
