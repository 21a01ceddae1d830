"""`python -m llmqsim.benchmark.growth`: time and memory of a run by requests and by replicas, as Markdown.

Each run is case g (docs/benchmarks.md) with other numbers, in a process of its own: CPU seconds of loading, simulating
and figures, kernels compiled before, and the peak of its resident memory.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

RATE_PER_S = 6.45
"""of a replica"""


def measured(requests: int, replicas: int, routing: str) -> tuple[float, float]:
    """CPU seconds and peak MB of one run in this process, keeping its summary."""
    from importlib.resources import files

    from llmqsim.scenario.load import load
    from llmqsim.simulation import simulate

    case = str(files("llmqsim") / "presets" / "benchmarks.yaml")
    sets = {"workload.arrivals.rate": RATE_PER_S * replicas, "replicas": replicas, "routing": routing}
    simulate(load(case, sets={**sets, "workload.requests": 100}), keep="summary")
    start = time.process_time()
    simulate(load(case, sets={**sets, "workload.requests": requests}), keep="summary").summary()
    spent = time.process_time() - start
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KB elsewhere
    return spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--routing", default="round_robin")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(*measured(given.requests[0], given.replicas[0], given.routing))
        return
    print("| requests | replicas | CPU s | requests per CPU s | peak MB |\n| ---: | ---: | ---: | ---: | ---: |", flush=True)
    for requests in given.requests:
        for replicas in given.replicas:
            asked = ["--one", "--requests", str(requests), "--replicas", str(replicas), "--routing", given.routing]
            command = [sys.executable, "-m", "llmqsim.benchmark.growth", *asked]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            spent, peak = map(float, told.split())
            print(f"| {requests:,} | {replicas} | {spent:.2f} | {requests / spent:,.0f} | {peak:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
