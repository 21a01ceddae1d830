"""C10: shortest first starves the longest; neither kind of ageing gives both the wait and the mean back."""

from __future__ import annotations

import pytest

from tests.claims.claims import measured, misses

pytestmark = pytest.mark.long


def test_the_longest_starve_and_deadlines_beat_both():
    bad = [check for check in misses("C10") if "promotion" not in check and "ageing" not in check]
    assert bad == []


def test_ageing_gives_back_the_wait_or_keeps_the_gain():
    """Each kind does one of the two, and the line that is missed says why."""
    assert misses("C10") == {
        "P99 wait of the longest tenth, promotion after 1,000 steps, over fcfs",
        "share of the mean's gain that is kept, ageing by 50 tokens a second",
    }
    assert all("some two fifths" in measured("C10")[check]["reason"] for check in misses("C10"))
    starved = measured("C10")["P99 wait of the longest tenth, sjf over fcfs, load 1.1"]["simulated"]
    assert (
        measured("C10")["P99 wait of the longest tenth, promotion after 1,000 steps, over fcfs"]["simulated"]
        < starved / 2
    )
