"""The development part of the measured serving runs: every figure is found, nearly every case becomes a scenario."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from llmqsim.scenario.load import from_mapping
from llmqsim.validate import command
from llmqsim.validate.cases import read_cases
from llmqsim.validate.figures import figures
from llmqsim.validate.runs import Run, plan

DATA = Path(__file__).parents[3] / "shared" / "data" / "serving"
pytestmark = pytest.mark.skipif(not (DATA / "cases.yaml").is_file(), reason="../shared/data/serving is absent")


def test_figures_are_those_of_the_long_table():
    table = pd.read_csv(DATA / "metrics_dev.csv")
    theirs = Counter(zip(table.case_id, table.stage.astype(str), table.metric, table.stat, table.value, strict=True))
    ours = Counter(
        (case.id, stage, figure.metric, figure.stat, figure.measured)
        for case in read_cases(DATA / "cases.yaml")
        for stage, entry in zip(case.stages, case.entries, strict=True)
        for figure in figures(entry)
    )
    assert theirs - ours == Counter()
    assert ours - theirs == Counter()


def test_nine_tenths_of_each_family_become_scenarios_that_load():
    pytest.importorskip("pyarrow")
    cases = command.read(
        [DATA / "cases.yaml"], None, [DATA / "closed_loop_dev.csv"], [DATA / "static_batch_dev.csv"]
    )
    known, counts = Counter(), Counter()
    for case in cases:
        for item in plan(case):
            counts[case.family] += len(item.entries)
            if isinstance(item, Run):
                known[case.family] += len(item.entries)
                if not item.files:
                    from_mapping(item.scenario)
    shares = {family: known[family] / count for family, count in counts.items()}
    assert min(shares.values()) >= 0.9, shares
    assert counts["closed-loop"] == 915 and counts["static-batch"] == 76
