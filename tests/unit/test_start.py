"""What a start must not load: it would be paid by every `llmqsim run`."""

from __future__ import annotations

import os
import subprocess
import sys

SCENARIO = "{workload: {requests: 50, arrivals: {process: poisson, rate: 6 req/s}, lengths: azure-conversation}, "
SCENARIO += "model: llama-3.1-8b, gpu: a100-sxm-80gb}"
RUN = """
import sys
from llmqsim.cli import main
assert main(["run", sys.argv[1]]) == 0
print("loaded:", *[name for name in ("pandas", "scipy.special", "scipy.linalg", "matplotlib") if name in sys.modules])
import numba, numpy, scipy.linalg
"""


def test_a_run_loads_neither_pandas_nor_scipy(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(SCENARIO)
    told = subprocess.run([sys.executable, "-c", RUN, str(path)], capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "loaded:"


def test_nothing_is_compiled_or_loaded_at_import():
    code = "import sys, llmqsim; from llmqsim import load; print(sorted(m for m in sys.modules if m in ('numba', 'pandas')))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "[]"
    code = "import llmqsim.simulation, llmqsim.engine.compiled.sending as k; print(len(k.entry.signatures))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "0"


def test_the_command_line_uses_one_thread_for_linear_algebra_unless_told_otherwise():
    code = "import os, sys\nfrom llmqsim.cli import main\nsys.argv[1:] = ['schema', '--markdown']\nmain()\n"
    code += "print('threads', os.environ.get('OPENBLAS_NUM_THREADS'), os.environ.get('OMP_NUM_THREADS'))"
    bare = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    for given, expected in ({}, "threads 1 1"), ({"OMP_NUM_THREADS": "3"}, "threads None 3"):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**bare, **given}, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == expected
