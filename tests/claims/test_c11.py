"""C11: the verdict names what was planted."""

from __future__ import annotations

from tests.claims.claims import measured, misses


def test_it_holds():
    assert misses("C11") == set()


def test_the_planted_limits_are_named():
    lines = measured("C11")
    assert "max_num_seqs" in lines["few slots: the verdict is 'queue'"]["assumption"]
    assert "KV blocks" in lines["small pool: the verdict is 'memory'"]["assumption"]
    assert lines["a healthy server: share of time with a step under way"]["simulated"] > 0.99
