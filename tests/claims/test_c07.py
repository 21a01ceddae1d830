"""C07: chunks beside decodes carry more load within a limit on the gap between tokens, and the first token pays for it."""

from __future__ import annotations

import pytest

from llmqsim.claims import FOLDER, Setting, c07
from tests.claims.claims import measured, misses


def test_each_server_is_loaded_by_what_it_carries_itself(monkeypatch):
    """By hand: prefill-first carries 3 req/s, chunks of 512 carry 2 and their first token takes twice as long."""
    asked = []

    def seen(setting, server, rate):
        asked.append((server.variants, round(rate, 6)))
        return (0.1, 2.0, 0.0) if "chunks_512" in server.variants else (0.4, 1.0, 0.0)

    monkeypatch.setattr(c07, "_seen", seen)
    monkeypatch.setattr(c07, "saturated_per_s", lambda _, name, variants, *rest: 2.0 if variants else 3.0)
    setting = Setting(FOLDER, reduced=True)
    whole, chunked = (c07._servers(setting, variants) for variants in ((), ("chunks_512",)))
    carried, gap, ttft = c07._latencies(setting, "", "chunks_512", chunked, whole)
    rates = {variants: sorted(rate for its, rate in asked if its == variants) for variants in ((), ("chunks_512",))}
    assert rates == {(): [2.1, 2.4, 2.7], ("chunks_512",): [1.4, 1.6, 1.8]}
    assert (carried.simulated, gap.simulated, ttft.simulated) == pytest.approx((2 / 3, 0.25, 2.0))


@pytest.mark.long
def test_all_but_the_ttft_of_small_chunks_holds():
    """Chunks of 512 tokens keep the strict limit and make the first token wait; those of 2,048 hardly do."""
    assert misses("C07") == {f"{model}: mean TTFT, chunks of 512 over prefill-first" for model in ("7B", "34B on two")}


@pytest.mark.long
@pytest.mark.parametrize("model", ["7B", "34B on two"])
def test_the_smaller_the_chunk_the_shorter_the_gap_and_the_longer_the_ttft(model):
    told = {check: line["simulated"] for check, line in measured("C07").items()}
    gap, ttft = (
        [told[f"{model}: {what}, chunks of {n} over prefill-first"] for n in (512, 2048)]
        for what in ("P99 of the gap", "mean TTFT")
    )
    assert gap[0] < gap[1] < 1 < ttft[1] < ttft[0]
