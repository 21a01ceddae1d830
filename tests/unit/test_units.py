"""Quantities: exact to the last bit, refused when unclear, shown in the unit that reads best."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqsim import units
from llmqsim.errors import UserError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500 ms", 0.5),
        ("500ms", 0.5),
        (" 1.5 s ", 1.5),
        ("10 min", 600.0),
        ("1 h", 3600.0),
        ("2 d", 172800.0),
        ("3 us", 3e-6),
        ("3 µs", 3e-6),
        ("40 ns", 4e-8),
        ("1e-3 s", 1e-3),
        (".5 s", 0.5),
        ("7", 7.0),
        (7, 7.0),
        (0.1, 0.1),
        ("-5 ms", -0.005),
        ("0.1 s / 1024", 0.1 / 1024),
        ("1 s/1024", 1 / 1024),
        ("10 ms / 3", float(Fraction(1, 300))),
    ],
)
def test_times_are_read_exactly(text, seconds):
    assert units.parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("80 GiB", 80 * 2**30), ("10 GB", 10**10), ("1.5 KiB", 1536), ("64 kB", 64_000), ("12 B", 12), (5, 5), ("5", 5)],
)
def test_sizes_are_read_exactly(text, size):
    read = units.parse_bytes(text)
    assert (read, type(read)) == (size, int)


@pytest.mark.parametrize(
    ("text", "per_second"),
    [
        ("12 req/s", 12.0),
        ("6.45/s", 6.45),
        ("300 req/min", 5.0),
        ("36 requests/h", 0.01),
        ("12 req / s", 12.0),
        (3, 3.0),
    ],
)
def test_rates_are_read_exactly(text, per_second):
    assert units.parse_rate(text) == per_second


@pytest.mark.parametrize(
    "value", ["", "ms", "abc", "5 5", "1_000 s", "--5 s", "1 s / x / 2", "1e999 s", "9" * 70, True, None, [1], {}]
)
@pytest.mark.parametrize("parse", [units.parse_seconds, units.parse_bytes, units.parse_rate])
def test_what_is_no_quantity_is_refused(parse, value):
    with pytest.raises(UserError):
        parse(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), np.float64("nan")])
def test_what_is_not_finite_is_refused(value):
    with pytest.raises(UserError, match="finite"):
        units.parse_seconds(value)


def test_an_unknown_unit_names_the_known_ones_and_the_nearest():
    with pytest.raises(units.QuantityError) as caught:
        units.parse_bytes("10 gib")
    assert str(caught.value) == (
        "unknown unit 'gib' (got '10 gib'); did you mean 'GiB'? write a number and a unit, such as '80 GiB' "
        "(units: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)"
    )
    with pytest.raises(ValueError, match=r"unknown unit 'sec'.*ns, us, ms, s, min, h, d"):
        units.parse_seconds("5 sec")


@pytest.mark.parametrize("text", ["1 s / 0", "1 s / -2"])
def test_a_time_is_divided_by_a_positive_number_only(text):
    with pytest.raises(UserError, match="divisor"):
        units.parse_seconds(text)


def test_only_times_are_divided():
    with pytest.raises(UserError, match="divisor"):
        units.parse_bytes("10 GiB / 2")


@pytest.mark.parametrize(
    ("seconds", "ns"),
    [(0.05, 50_000_000), (0.1, 10**8), (1.4e-9, 1), (Fraction(5, 2 * 10**9), 2), (Fraction(7, 2 * 10**9), 4)],
)
def test_nanoseconds_are_the_nearest_half_to_even(seconds, ns):
    assert units.to_ns(seconds) == ns


@given(st.integers(0, 2**53))
def test_whole_nanoseconds_survive_the_way_through_text(ns):
    assert units.to_ns(units.parse_seconds(f"{ns} ns")) == pytest.approx(ns, abs=1, rel=1e-15)
    assert units.to_seconds(ns) == ns / 10**9


def test_to_seconds_takes_arrays():
    assert units.to_seconds(np.array([5_000_000, 1])).tolist() == [0.005, 1e-9]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (1e-7, "100 ns"),
        (5e-5, "50 us"),
        (0.0123456, "12.3 ms"),
        (0.00099996, "1 ms"),
        (0.9999, "1 s"),
        (1.2345, "1.23 s"),
        (-0.25, "-250 ms"),
        (299, "299 s"),
        (400, "6.67 min"),
        (9000, "2.5 h"),
        (float("inf"), "inf s"),
    ],
)
def test_times_are_shown_in_the_unit_that_reads_best(seconds, shown):
    assert units.format_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0 B"), (1024, "1 KiB"), (131072, "128 KiB"), (80 * 2**30, "80 GiB"), (1.5e13, "13.6 TiB")]
)
def test_sizes_are_shown_in_binary_units(size, shown):
    assert units.format_bytes(size) == shown


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(0, "0 req/s"), (6.45, "6.45 req/s"), (0.05, "3 req/min"), (0.001, "3.6 req/h"), (1234, "1234 req/s")],
)
def test_rates_are_shown_per_second_unless_tiny(rate, shown):
    assert units.format_rate(rate) == shown


@given(st.floats(1e-9, 1e8))
def test_what_is_shown_reads_back_within_its_three_digits(seconds):
    assert units.parse_seconds(units.format_seconds(seconds)) == pytest.approx(seconds, rel=5.1e-3)
