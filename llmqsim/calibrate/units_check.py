"""Are the times of a kernel table microseconds? Compared with what the physics and the shipped fits expect."""

from __future__ import annotations

import numpy as np

from llmqsim.calibrate.rows import Rows, split
from llmqsim.calibrate.tables import Part
from llmqsim.cost.store import Fitted, machine, shipped
from llmqsim.errors import DataError

TOO_FAST = 1 / 100
TOO_SLOW = 100.0
"""median of measured over expected beyond which the unit is wrong; real kernels stay well inside"""
SAMPLE = 3000
UNITS = ((1e-3, "milliseconds"), (1e-6, "seconds"), (1e3, "nanoseconds"))


def check_units(part: Part) -> None:
    """Raises DataError where the median time is off by a factor that only a wrong unit explains."""
    if "latency_us" not in part.frame:
        return
    step = max(1, len(part.frame) // SAMPLE)
    frame = part.frame.iloc[::step]
    expected = np.full(len(frame), np.nan)
    for rows in split(part.family, frame):
        expected[rows.position] = expect(rows)
    measured = frame["latency_us"].to_numpy(dtype=np.float64)
    ratio = measured / expected
    median = float(np.nanmedian(ratio)) if np.isfinite(ratio).any() else 1.0
    if TOO_FAST < median < TOO_SLOW:
        return
    at = int(np.nanargmin(np.abs(np.log(ratio / median))))
    unit = min(UNITS, key=lambda u: abs(np.log(median / u[0])))[1]
    raise DataError(
        f"{part.path}: row {frame.index[at]}: latency_us: {measured[at]:g} where some {expected[at]:.3g} us are "
        f"expected, and {median:.2g} times the expected time in the median of the file: must be microseconds "
        f"(these look like {unit})"
    )


def expect(rows: Rows) -> np.ndarray:
    """Expected microseconds from the nearest shipped configuration; NaN where there is none."""
    fitted = shipped_or_none(rows)
    if fitted is None:
        return np.full(len(rows), np.nan)
    form = rows.family.form(rows.config)
    card = machine(str(rows.config["gpu"]))
    return form.seconds(fitted.constants, rows.columns, card, rows.dtype) * 1e6


def shipped_or_none(rows: Rows) -> Fitted | None:
    """The nearest shipped configuration, or None when nothing of the kind (or of this form) is shipped."""
    try:
        fitted = shipped().find(rows.family.name, rows.config)
    except DataError:
        return None
    names = {name for name, *_ in rows.family.form(rows.config).bounds()}
    return fitted if fitted and names <= set(fitted.constants) else None
