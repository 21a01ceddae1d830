"""The notebooks run from top to bottom, at a reduced size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import python_environment

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SIZES = {
    "comparing_policies": {"LLMQSIM_NOTEBOOK_REQUESTS": "250"},
    "queue_discipline_beats_cards": {"LLMQSIM_NOTEBOOK_REQUESTS": "700", "LLMQSIM_NOTEBOOK_RUNS": "2"},
    "sizing_from_your_trace": {"LLMQSIM_NOTEBOOK_REQUESTS": "3000"},
    "launch_demo": {"LLMQSIM_DEMO_REQUESTS": "6000", "LLMQSIM_DEMO_RUNS": "2"},
}
SAYS = {
    "comparing_policies": ("short_first against fcfs", "by tokens, prompt and output", "against itself on other traffic"),
    "queue_discipline_beats_cards": ("paged memory", "one card with good rules"),
    "sizing_from_your_trace": ("by means", "at 4/3 of the rate:"),
    "launch_demo": ("real lengths, least outstanding", "23 replicas"),
}


def test_every_notebook_is_run():
    assert {path.stem for path in NOTEBOOKS.glob("*.py")} == set(SIZES) == set(SAYS)


@pytest.mark.long
@pytest.mark.parametrize("name", SIZES)
def test_it_runs_from_top_to_bottom(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(NOTEBOOKS / f"{name}.py")],
        capture_output=True, text=True, env=python_environment(**SIZES[name]), timeout=1200, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for words in SAYS[name]:
        assert words in done.stdout


def test_the_policy_of_the_notebook_takes_under_thirty_lines():
    text = (NOTEBOOKS / "comparing_policies.py").read_text(encoding="utf-8")
    policy = text[text.index('@register("ordering"') : text.index("check_policy(\"ordering\"")]
    assert len([line for line in policy.splitlines() if line.strip()]) < 30
