"""Small scenarios and grids for the tests of sweeps."""

from __future__ import annotations

from pathlib import Path

SCENARIO = """\
workload:
  requests: 200
  arrivals: {process: poisson, rate: 4}
  lengths: {prompt: 100, output: {exponential: {mean: 20}}}
cost: {model: affine, base: 10 ms, per_decode_request: 1 ms}
engine: {max_num_seqs: 8, num_gpu_blocks_override: 2000}
slo: {ttft: 200 ms, tpot: 50 ms}
variants:
  wide: {engine.max_num_seqs: 32}
"""
GRID = """\
scenario: scenario.yaml
axes:
  engine.max_num_seqs: [1, 2, 4]
  workload.arrivals.rate: {from: 1, to: 9, steps: 2}
"""


def write_grid(folder: Path, text: str = GRID, scenario: str = SCENARIO) -> str:
    """A scenario and a grid of it in a folder; the grid's path."""
    (folder / "scenario.yaml").write_text(scenario)
    (folder / "grid.yaml").write_text(text)
    return str(folder / "grid.yaml")
