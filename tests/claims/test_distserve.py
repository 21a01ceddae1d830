"""DistServe's example: told, not judged, but that a GPU of the split deployment serves more than one that does both."""

from __future__ import annotations

import pytest

from tests.claims.claims import measured, misses

pytestmark = pytest.mark.long
GAIN = "2P1D per GPU over one that does both"


def test_splitting_gains_with_measured_kernels():
    """Known miss: with the preset of 2023 it does not (0.79 at full size): its decode steps fill the TPOT target."""
    assert misses("DistServe") == {f"2023 engine: {GAIN}"}
    line = measured("DistServe")[f"2023 engine: {GAIN}"]
    assert 0.65 < line["simulated"] < 0.95 and "34 ms" in line["reason"]


def test_one_task_alone_serves_more_than_both():
    found = {check: line["simulated"] for check, line in measured("DistServe").items()}
    for engine in ("vLLM 0.14", "vLLM 0.6", "2023 engine"):
        both = found[f"{engine}: both, req/s"]
        assert min(found[f"{engine}: prefill only, req/s"], found[f"{engine}: decode only, req/s"]) > both > 0
