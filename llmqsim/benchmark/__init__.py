"""How fast is the simulator? Each case in a process of its own, with the machine's own limits beside it.

A case is timed from loading its scenario to its JSON on disk, warm (everything compiled before), in CPU seconds. The
first 2,000 requests also run in the reference engine, and both results must have the same hash.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from llmqsim.errors import UserError, did_you_mean

CASES: dict[str, str] = {
    "a": "1 replica, round robin, one step in flight",
    "b8": "8 replicas, least outstanding",
    "b64": "64 replicas, least outstanding",
    "c": "KV pool of 2,000 blocks: preemption by recompute",
    "e": "closed loop, 256 clients, 1 replica",
    "f": "as a, two steps in flight",
    "g": "10 million requests over 16 replicas, round robin",
}
REFERENCE_ONLY: dict[str, str] = {
    "c-swap": "preemption by swap",
    "d512": "prefix cache, 512-token blocks",
    "d16": "prefix cache, 16-token blocks",
}
"""cases that the compiled engine has no form for yet; they are named and skipped"""
USUAL = tuple(name for name in CASES if name != "g")
"""cases that run unless others are named; g takes a minute and 3 GB"""


def bench(names: list[str]) -> dict[str, Any]:
    """Run the cases named (none: the usual ones); return `machine`, `cases` and `skipped` as plain data.

    Raises UserError for a case that does not exist.
    """
    known = [*CASES, *REFERENCE_ONLY]
    faults = [
        f"--case {name}: unknown case{did_you_mean(name, known)} Known: {', '.join(known)}"
        for name in names
        if name not in known
    ]
    if faults:
        raise UserError(*faults)
    wanted = names or [*USUAL, *REFERENCE_ONLY]
    return {
        "machine": _in_its_own_process("machine"),
        "cases": [_in_its_own_process(name) for name in wanted if name in CASES],
        "skipped": [{"case": name, "why": REFERENCE_ONLY[name]} for name in wanted if name in REFERENCE_ONLY],
    }


def _in_its_own_process(name: str) -> dict[str, Any]:
    """So that its peak of memory is its own."""
    command = [sys.executable, "-m", "llmqsim.benchmark.measure", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise UserError(f"bench: case {name} ended with exit code {done.returncode}")
    return json.loads(done.stdout)


def bench_text(told: dict[str, Any]) -> str:
    """The figures as a table."""
    machine = told["machine"]
    lines = [
        f"machine  {machine['simpy_timeouts_per_cpu_s']:,} bare SimPy timeouts, "
        f"{machine['numba_steps_per_cpu_s']:,} bare decode steps in numba, per CPU second",
        "",
        f"{'case':6s} {'engine':9s} {'requests':>10s} {'CPU s':>8s} {'requests/s':>11s} {'of SimPy':>8s} "
        f"{'tokens/s':>13s} {'peak MB':>8s}  result",
    ]
    for case in told["cases"]:
        share = case["requests_per_cpu_s"] / machine["simpy_timeouts_per_cpu_s"]
        lines.append(
            f"{case['case']:6s} {case['engine']:9s} {case['requests']:10,} {case['cpu_s']:8.3f} "
            f"{case['requests_per_cpu_s']:11,} {share:8.2f} {case['tokens_per_cpu_s']:13,} "
            f"{case['peak_rss_bytes'] / 1e6:8,.0f}  {case['result_hash'][:12]}"
        )
    for case in told["cases"]:
        parts = ", ".join(f"{part} {seconds:.3f}" for part, seconds in case["parts_cpu_s"].items())
        check = case["reference"]
        same = "same result" if check["same_result"] else "ANOTHER RESULT"
        lines.append(
            f"{case['case']:6s} CPU s: {parts}; reference engine on {check['requests']:,} requests: "
            f"{check['requests_per_cpu_s']:,} requests/s, {same}"
        )
    lines += [f"{case['case']:6s} skipped: reference engine only ({case['why']})" for case in told["skipped"]]
    return "\n".join(lines)
