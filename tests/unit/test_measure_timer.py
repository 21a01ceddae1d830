"""The timer of the measuring kit, on calls whose times are known."""

from __future__ import annotations

import math

import pytest
from fake_gpu import FakePrepared, backend, timer


class Scripted(FakePrepared):
    """Windows that take the scripted seconds a call, one after the other; the last one stays."""

    def __init__(self, script: list[float], copies: int = 1):
        super().__init__(script[0], copies)
        self.script = list(script)

    def window(self, calls: int):
        self.windows.append(calls)

        def run() -> float:
            self.ran.append(calls)
            return calls * (self.script.pop(0) if len(self.script) > 1 else self.script[0])

        return run


EFFORT = timer.Effort(window_s=0.01, warm_up_s=0.05, repeats=5, most_repeats=8, most_calls=256)


def test_a_steady_call_is_told_exactly():
    timing = timer.measure(FakePrepared(20e-6), EFFORT)
    assert timing.latency_us == timing.lat_min_us == 20.0
    assert (timing.n_rep, timing.calls) == (5, 256)
    assert timing.rep_spread == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "seconds, copies, calls", [(1e-4, 2, 100), (5e-3, 2, 2), (1.0, 1, 1), (1e-6, 2, 256), (1e-3, 40, 40)]
)
def test_a_window_is_long_enough_and_goes_round_every_buffer(seconds, copies, calls):
    prepared = FakePrepared(seconds, copies)
    assert timer.measure(prepared, EFFORT).calls == calls
    assert prepared.windows[0] == copies, "the first window touches every buffer"


def test_the_first_run_and_the_warm_up_are_never_counted():
    # 1 s to compile, then the pilot; warm-up of 0.05 s = 5 windows at the slow clock; then the real thing
    script = [1.0, 1e-2] + [9e-3] * 5 + [5e-3]
    timing = timer.measure(Scripted(script), EFFORT)
    assert timing.latency_us == timing.lat_min_us == 5000.0


def test_the_median_and_the_spread_of_the_repeats():
    times = [10.0, 11.0, 10.2, 10.1, 10.3]
    script = [1e-5, 1e-5, *[1e-5] * 20, *[t * 1e-6 for t in times]]
    effort = timer.Effort(window_s=1e-5, warm_up_s=2e-4, repeats=5, most_repeats=5)
    timing = timer.measure(Scripted(script), effort)
    assert timing.latency_us == 10.2
    assert timing.lat_min_us == 10.0
    assert timing.rep_spread == pytest.approx(1.0 / 10.2, abs=1e-6)


def test_noise_asks_for_more_repeats_up_to_a_limit():
    noisy = [1e-2 * (1 + 0.1 * (i % 3)) for i in range(60)]
    assert timer.measure(Scripted([1e-2, 1e-2, *noisy]), EFFORT).n_rep == EFFORT.most_repeats
    assert timer.measure(Scripted([1e-2]), EFFORT).n_rep == EFFORT.repeats


@pytest.mark.parametrize("seconds", [0.0, -1e-6, math.nan, math.inf])
def test_an_impossible_clock_is_no_measurement(seconds):
    with pytest.raises(backend.CannotMeasure, match="clock"):
        timer.measure(FakePrepared(seconds), EFFORT)
