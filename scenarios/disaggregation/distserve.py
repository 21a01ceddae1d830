"""DistServe's example, simulated against published: `python scenarios/disaggregation/distserve.py`.

OPT-13B on A100-80GB, Poisson, 512 prompt and 64 output tokens, P90 TTFT 0.4 s and P90 TPOT 0.04 s. Each target has to
hold for 90 % of the requests by itself, as in the paper; prefill-only and decode-only have one of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from goodput import goodput, grid

HERE = Path(__file__).parent
SCENARIO = str(HERE / "2p1d.yaml")
NEVER = float("inf")
SLO = (0.4, 0.04)
PUBLISHED = {"prefill only": 5.6, "decode only": 10.0, "colocated": 1.6, "2P1D, per GPU": 3.3}
ENGINES = {"this project's kernels, vllm-0.14": [], "an engine of 2023 (orca-2023)": ["engine_of_2023"]}
STEP = 1.2
"""how much faster each rate is than the one before"""


def rates(variant: list[str], slos: list[tuple[float, float]], lowest: float = 0.5, **sets) -> list[float]:
    """The highest rate that keeps each SLO."""
    found = goodput(SCENARIO, slos, grid(lowest, 100, STEP), variant=variant, sets=sets)
    return list(found.values())


def both(variant: list[str]) -> float:
    """The highest rate at which either target holds for 90 %."""
    return min(rates(variant, [(SLO[0], NEVER), (NEVER, SLO[1])]))


def figures(variant: list[str]) -> dict[str, float]:
    """Requests per second of the four deployments."""
    alone = ["colocated", *variant]
    # ten prefill GPUs keep one decode GPU busy, whose answers then depend on nothing else
    return {
        "prefill only": rates(alone, [(SLO[0], NEVER)], **{"workload.lengths.output": 1})[0],
        "decode only": rates(variant, [(NEVER, SLO[1])], **{"pools.prefill.replicas": 10})[0],
        "colocated": both(alone),
        "2P1D, per GPU": both(variant) / 3,
    }


def main() -> None:
    found = {name: figures(variant) for name, variant in ENGINES.items()}
    if "--json" in sys.argv:
        print(json.dumps({"published": PUBLISHED, "simulated": found}, indent=1))
        return
    print(f"{'requests per second':<36}" + "".join(f"{name:>16}" for name in PUBLISHED))
    for name, row in {"published": PUBLISHED, **found}.items():
        print(f"{name:<36}" + "".join(f"{value:>16.2f}" for value in row.values()))


if __name__ == "__main__":
    main()
