"""The runs of today leave the marks that they left on the day each golden trace was made. See README.md there."""

from __future__ import annotations

import json

import pytest

from tests.golden.make import CASES, FOLDER, marks

FILES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
CURRENT = [name for name, golden in FILES.items() if "superseded_by" not in golden]


@pytest.mark.parametrize("name", CURRENT)
def test_golden(name):
    found = marks(name)
    for column, values in FILES[name]["marks"].items():
        assert found[column] == values, column


def test_every_case_has_its_golden_trace_and_every_superseded_one_its_successor():
    assert set(FILES) == set(CASES)
    for golden in FILES.values():
        assert golden.get("superseded_by", next(iter(FILES))) in FILES


def test_the_cases_exercise_what_they_are_named_for():
    seen = {name: CASES[name].run() for name in CASES}
    usage = {name: cluster.replicas[0].usage for name, cluster in seen.items()}
    for name in ("v1_tight_pool", "v1_tight_pool_no_gate", "sarathi", "trtllm_max_utilization", "v0_swap"):
        assert usage[name].preemptions > 0, name
    for name in ("v1_prefix_cache", "v1_prefix_cache_host_tier"):
        assert usage[name].cached_tokens > 0, name
    assert usage["v1_prefix_cache_host_tier"].loaded_tokens > 0
    assert usage["v0_swap"].swapped_blocks > 0
    assert usage["v1_async"].wasted_rows > 0
    assert usage["static"].padded_tokens > 0
