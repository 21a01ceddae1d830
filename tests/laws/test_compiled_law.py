"""The law of the two engines: equal tables, usage, gaps and step logs, bit for bit, whatever the scenario."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.laws.compiled_cases import compared, differences, rare
from tests.laws.kind_cases import first_difference

SHORT, LONG = range(600), range(600, 8_600)


def check(seeds: range) -> None:
    """Every case agrees; those that only the reference engine can run to the end are few.

    Every third one keeps no step log: then steps of decodes alone are made in one loop.
    """
    fell_back = 0
    for seed in seeds:
        told = differences(compared(seed), keep_steps=seed % 3 > 0)
        fell_back += told == ["fell back"]
        assert told in ([], ["fell back"]), f"case {seed}: {told}: {compared(seed)}"
    assert fell_back < len(seeds) / 8


def test_the_engines_agree():
    check(SHORT)


def test_the_engines_agree_in_rare_cases():
    for case in rare():
        assert differences(case, keep_steps=False) == [], case


def check_kinds(seeds: range) -> None:
    """In plain Python: every mixture of batching, ordering and routing is compiled anew, which would take hours."""
    command = [sys.executable, "-m", "tests.laws.kind_cases", str(seeds.start), str(seeds.stop)]
    done = subprocess.run(command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True)
    assert done.stdout.strip() == "the engines agree", done.stdout + done.stderr


def test_the_engines_agree_under_every_policy_and_clients_of_every_kind():
    check_kinds(range(100))


@pytest.mark.long
def test_the_engines_agree_under_every_policy_on_thousands():
    check_kinds(range(100, 700))


@pytest.mark.long
def test_the_engines_agree_under_some_policies_as_machine_code():
    assert first_difference(range(100, 102)) is None


@pytest.mark.long
def test_the_engines_agree_on_thousands():
    check(LONG)
