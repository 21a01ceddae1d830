"""C04, by hand: KV of a 13B model."""

from __future__ import annotations

from tests.claims.claims import measured, misses


def test_it_holds():
    assert misses("C04") == set()
    assert all(line["holds"] for line in measured("C04").values())


def test_the_figures_are_those_of_a_calculator():
    """Two vectors (key, value) of 5,120 numbers of 2 bytes in 40 layers; the quoted megabyte is rounded up."""
    values = [line["simulated"] for line in measured("C04").values()]
    assert values == [2 * 40 * 5120 * 2, 14e9 // 819_200 // 512, 14e9 // 819_200 // 2048, 14_000 // 512, 14_000 // 2048]
