"""Trends along sweeps, on curves whose shapes are known."""

from __future__ import annotations

from math import sqrt

import pytest

from llmqsim.validate.cases import Case
from llmqsim.validate.errors_table import Row
from llmqsim.validate.figures import Figure
from llmqsim.validate.trends import trends


def sweep(points, name="one"):
    """Rows of one case. points : (concurrency, measured, predicted)."""
    case = Case(name, "closed-loop", "closed_loop", {}, {}, ({},) * len(points))
    return [
        Row(case, entry, Figure("tpot", "mean", measured), predicted, True, "", point={"concurrency": concurrency, "isl": 100})
        for entry, (concurrency, measured, predicted) in enumerate(points)
    ]


def test_the_same_shape_at_another_level_is_a_perfect_trend():
    (told,) = trends(sweep([(1, 10.0, 30.0), (2, 12.0, 36.0), (4, 20.0, 60.0)]))
    assert (told.sweeps, told.steps, told.same_way, told.rank) == (1, 2, 2, pytest.approx(1.0))
    assert told.measured == told.predicted == pytest.approx(2.0)


def test_a_prediction_that_falls_where_the_measurement_rises_is_seen_whatever_the_order_of_rows():
    (told,) = trends(sweep([(4, 20.0, 10.0), (1, 10.0, 30.0), (2, 12.0, 20.0)]))
    assert (told.steps, told.same_way, told.rank) == (2, 0, pytest.approx(-1.0))
    assert told.predicted == pytest.approx(1 / 3)


def test_steps_within_noise_have_no_direction_and_doubled_points_count_as_one():
    points = [(1, 10.0, 10.0), (2, 10.2, 9.0), (4, 8.0, 20.0), (4, 32.0, 20.0)]
    (told,) = trends(sweep(points))
    assert (told.steps, told.same_way) == (1, 1)
    assert told.measured == pytest.approx(sqrt(8.0 * 32.0) / 10.0)


def test_two_points_are_no_sweep_and_points_without_a_prediction_do_not_count():
    assert trends(sweep([(1, 10.0, 10.0), (2, 20.0, 20.0), (4, 30.0, None)])) == []
    (told,) = trends(sweep([(c, c, c) for c in (1.0, 2.0, 3.0)]) + sweep([(1, 2.0, 2.0)], name="two"))
    assert told.sweeps == 1
