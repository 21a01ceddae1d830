"""How fast is the simulator? Each case in a process of its own, with the machine's own limits beside it.

A case is timed from loading its scenario to its JSON on disk, warm (everything compiled before), in CPU seconds. The
first 2,000 requests also run in the reference engine, and both results must have the same hash.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import resources
from typing import Any

from llmqsim.errors import UserError, did_you_mean

CASES: dict[str, str] = {
    "a": "1 replica, round robin, one step in flight",
    "b8": "8 replicas, least outstanding",
    "b64": "64 replicas, least outstanding",
    "c": "KV pool of 2,000 blocks: preemption by recompute",
    "c-swap": "the same, preemption by swap into 4 GiB",
    "d512": "prompts that share prefixes, blocks of 512 tokens",
    "d16": "the same, blocks of 16 tokens",
    "e": "closed loop, 256 clients, 1 replica",
    "f": "as a, two steps in flight",
    "g": "10 million requests over 16 replicas, round robin",
    "h": "least slack at 110 % load, two classes, a queue of thousands",
    "i": "a prefill and a decode replica, hand-off by pull",
}
USUAL = tuple(name for name in CASES if name != "g")
"""cases that run unless others are named; g takes half a minute and 2 GB"""
RUNS = 5
"""of `llmqsim run`, of which the quickest counts"""
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
"""requests of case g that the exponent is fitted over"""


def bench(names: list[str], scale: bool = False, start: bool = False) -> dict[str, Any]:
    """Run the cases named (none: the usual ones); return `machine` and `cases` as plain data.

    scale : also case g from 10,000 requests on, and the exponent of its time. start : also what a first and a later
    start take. Raises UserError for a case that does not exist.
    """
    faults = [
        f"--case {name}: unknown case{did_you_mean(name, CASES)} Known: {', '.join(CASES)}"
        for name in names
        if name not in CASES
    ]
    if faults:
        raise UserError(*faults)
    told = {
        "machine": _in_its_own_process("machine"),
        "cases": [_in_its_own_process(name) for name in names or USUAL],
    }
    if scale:
        told["scale"] = _scale([_in_its_own_process(f"scale:{requests}") for requests in SIZES])
    if start:
        told["start"] = _start()
    return told


def _scale(points: list[dict[str, Any]]) -> dict[str, Any]:
    """exponent : slope of log CPU seconds over log requests, all points; exponent_large : from 100,000 requests on."""
    slopes = []
    for used in (points, points[1:]):
        x, y = ([math.log(point[key]) for point in used] for key in ("requests", "cpu_s"))
        slopes.append(statistics.linear_regression(x, y).slope)
    return {"points": points, "exponent": slopes[0], "exponent_large": slopes[1]}


def _start() -> dict[str, Any]:
    """compile : CPU and wall seconds with an empty cache; load : with a full one; run_wall_s : `llmqsim run` of case a."""
    with tempfile.TemporaryDirectory() as cache:
        cold = _in_its_own_process("compile", NUMBA_CACHE_DIR=cache)
        warm = _in_its_own_process("compile", NUMBA_CACHE_DIR=cache)
    with resources.as_file(resources.files("llmqsim.presets") / "benchmarks.yaml") as path:
        command = [sys.executable, "-m", "llmqsim.cli", "run", str(path), "--variant", "a"]
        walls = []
        for _ in range(RUNS):
            began = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            walls.append(time.perf_counter() - began)
    return {"compile": cold, "load": warm, "run_wall_s": min(walls)}


def _in_its_own_process(name: str, **environment: str) -> dict[str, Any]:
    """So that its peak of memory is its own."""
    command = [sys.executable, "-m", "llmqsim.benchmark.measure", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **environment})
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
    lines += [*_scale_lines(told.get("scale")), *_start_lines(told.get("start"))]
    return "\n".join(lines)


def _scale_lines(scale: dict[str, Any] | None) -> list[str]:
    if scale is None:
        return []
    points = [
        f"{point['requests']:,} in {point['cpu_s']:.3g} s ({point['peak_rss_bytes'] / 1e6:,.0f} MB)"
        for point in scale["points"]
    ]
    exponents = f"exponent {scale['exponent']:.2f}, {scale['exponent_large']:.2f} from 100,000 on"
    return [f"scale  {'; '.join(points)}; {exponents}"]


def _start_lines(start: dict[str, Any] | None) -> list[str]:
    if start is None:
        return []
    cold, warm = start["compile"], start["load"]
    return [
        f"start  compiling all kernels {cold['cpu_s']:.1f} s of CPU ({cold['wall_s']:.1f} s), loading them "
        f"{warm['cpu_s']:.2f} s ({warm['wall_s']:.2f} s); `llmqsim run` of case a, warm, {start['run_wall_s']:.2f} s"
    ]
