"""What the tests of the command line share: running a command in this process, and small files to run it on."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmqsim.cli import main

ROOT = Path(__file__).parents[2]

SCENARIO = """\
question: Does one server with steps of 10 ms keep up?
workload:
  requests: 150
  arrivals: {process: poisson, rate: 4 req/s}
  lengths: {prompt: 100, output: 10}
cost: {model: constant, step: 10 ms}
slo: {ttft: 200 ms, attainment: 0.9}
variants:
  slow: {cost.step: 50 ms}
  two: {replicas: 2}
"""
"""no GPU and no model: every step takes 10 ms, so that times follow by arithmetic"""

SERVED = """\
workload:
  requests: 40
  arrivals: {process: constant, rate: 4 req/s}
  lengths: {prompt: 100, output: 10}
model: llama-3.1-8b
gpu: a100-sxm-80gb
slo: {ttft: 500 ms, tpot: 50 ms}
"""
"""the calibrated cost model"""

TRACE = "arrival_s,prompt_tokens,output_tokens\n0.5,10,5\n1.0,20,6\n2.5,30,7\n"
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,10,5\n2023-11-16 18:15:47.1805900,20,6\n2023-11-16 18:15:48.6805900,30,7\n"
)
EVENTS = "request,arrival,time,tokens\na,0,0.1,1\na,0,0.2,2\nb,0.5,0.7,1\n"
LENGTHS = """\
kind: bins
prompt: {low: [10, 50], high: [40, 90], weight: [3, 1]}
output: [{low: [1], high: [20], weight: [1]}]
"""
CONFIG = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


@dataclass(frozen=True)
class Said:
    """What a command left behind: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def llmqsim(*argv: object) -> Said:
    """Run one command in this process. An exception that would be a traceback for the user is one here."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(a) for a in argv])
        except SystemExit as leaving:  # argparse
            code = int(leaving.code or 0)
    return Said(code, out.getvalue(), _unannounced(err.getvalue()))


def process(*argv: object, **environment: str) -> Said:
    """The same as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "llmqsim.cli", *map(str, argv)],
        capture_output=True,
        env=python_environment(**environment),
        timeout=120,
    )
    out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    return Said(done.returncode, out, _unannounced(err))


def _unannounced(err: str) -> str:
    """stderr without the line that announces compilation, which only a fresh installation prints."""
    return "".join(line for line in err.splitlines(keepends=True) if "compiling kernels" not in line)


def python_environment(**more: str) -> dict[str, str]:
    """This environment, with the package importable from anywhere."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def strict_json(path: Path) -> Any:
    """The content of a JSON file; NaN and infinities, which are no JSON, raise."""

    def refuse(name: str):
        raise AssertionError(f"{path.name} holds {name}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def write(folder: Path, **files: str | bytes) -> Path:
    """Write files whose names are given with an underscore for the point ("s_yaml"); return the folder."""
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name.replace("_", ".")).write_bytes(data)
    return folder
