"""C07: chunks beside decodes carry more load within a limit on the gap between tokens, and the first token pays for it."""

from __future__ import annotations

import pytest

from tests.claims.claims import measured, misses

pytestmark = pytest.mark.long


def test_all_but_the_ttft_of_small_chunks_holds():
    """Chunks of 512 tokens keep the strict limit and make the first token wait; those of 2,048 hardly do."""
    assert misses("C07") == {f"{model}: mean TTFT, chunks of 512 over prefill-first" for model in ("7B", "34B on two")}


@pytest.mark.parametrize("model", ["7B", "34B on two"])
def test_the_smaller_the_chunk_the_shorter_the_gap_and_the_longer_the_ttft(model):
    told = {check: line["simulated"] for check, line in measured("C07").items()}
    gap, ttft = (
        [told[f"{model}: {what}, chunks of {n} over prefill-first"] for n in (512, 2048)] for what in ("P99 of the gap", "mean TTFT")
    )
    assert gap[0] < gap[1] < 1 < ttft[1] < ttft[0]
