"""The reduced suite without numba's compiler: kernels as the plain Python that they are written in.

What a kernel gives must not hang on how numba compiles it; and where a kernel fails, plain Python says in which line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REDUCED = (
    "tests/golden",
    "tests/laws/test_compiled_law.py",
    "tests/laws/test_laws.py",
    "tests/laws/test_client_laws.py",
    "tests/unit/test_faster_and_the_same.py",
    "tests/unit/test_cost_kernels.py",
    "tests/unit/test_metrics_distribution.py",
    "tests/unit/test_prefix_pool.py",
    "tests/unit/test_reference_engine.py",
)
MOST_S = 900
"""it takes a minute on an idle machine"""


@pytest.mark.long
def test_the_reduced_suite_holds_in_plain_python():
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *REDUCED]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=MOST_S, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "failed" not in done.stdout and "100%" in done.stdout
