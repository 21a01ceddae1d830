"""The cache of machine code, and what of numba a user sees."""

from __future__ import annotations

import os
import subprocess
import sys

from llmqsim import jit, records
from llmqsim.engine.compiled.books.kernels import gap_bin
from llmqsim.engine.compiled.kernels import advance


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_nothing_is_compiled_at_import():
    told = python(
        "from llmqsim import simulate\n"
        "from llmqsim.engine.compiled.loop import kernels as loop\n"
        "from llmqsim.engine.compiled import kernels\n"
        "print([len(k.signatures) for k in (kernels.advance, kernels.route, loop.serve)])"
    )
    assert told == "[0, 0, 0]"


def test_a_new_cache_is_cold_until_the_kernel_has_run(tmp_path):
    told = python(
        "from llmqsim import jit\n"
        "from llmqsim.engine.compiled.books.kernels import gap_bin\n"
        "jit.announce_with(lambda: print('compiling'))\n"
        "for _ in range(3):\n"
        "    jit.about_to_call(gap_bin)\n"
        "    gap_bin(300)\n"
        "    print(jit.is_cold(gap_bin))",
        NUMBA_CACHE_DIR=str(tmp_path),
    )
    assert told.split() == ["compiling", "False", "False", "False"]


def test_machine_code_of_other_sources_is_not_used(tmp_path):
    cached = "from llmqsim import jit\nfrom llmqsim.engine.compiled.books.kernels import gap_bin\n"
    python(cached + "gap_bin(1)", NUMBA_CACHE_DIR=str(tmp_path))
    same = python(cached + "print(jit.is_cold(gap_bin))", NUMBA_CACHE_DIR=str(tmp_path))
    upgraded = "from llmqsim import jit\njit._stamp = lambda: 'of another version'\n" + cached
    other = python(upgraded + "print(jit.is_cold(gap_bin))", NUMBA_CACHE_DIR=str(tmp_path))
    assert (same, other) == ("False", "True")


def test_the_stamp_covers_what_kernels_are_made_of():
    assert advance._cache._cache_file._source_stamp == jit._stamp()


def test_gap_bins_are_those_of_the_records():
    gaps = [*range(3000), *(base + d for k in range(12, 62) for base in [1 << k] for d in (-1, 0, 1, 12345))]
    assert [gap_bin(gap) for gap in gaps] == [records.gap_bin(gap) for gap in gaps]
