"""The bands within which a check counts as reproduced: a YAML file, claim -> check -> [low, high]."""

from __future__ import annotations

import math
import os
from typing import Any

import yaml

from llmqsim.errors import DataError, did_you_mean
from llmqsim.files import read_bytes

Band = tuple[float | None, float | None]
"""lowest and highest; None: no limit on that side"""
Bands = dict[str, dict[str, Band]]
RIGHT = "must be [low, high], with null for no limit"


def read_bands(path: str | os.PathLike[str]) -> Bands:
    """Read them. Raises DataError with every fault."""
    text = read_bytes(path, "bands (claim -> check -> [low, high])")
    try:
        told = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: is no YAML ({' '.join(str(error).split())})") from None
    if not isinstance(told, dict):
        raise DataError(f"{path}: must be a mapping of claims, such as C04: {{check: [low, high]}}")
    faults: list[str] = []
    bands: Bands = {}
    for claim, checks in told.items():
        if not isinstance(checks, dict):
            faults.append(f"{path}: {claim}: must be a mapping of checks to [low, high] (got {checks!r})")
            continue
        bands[str(claim)] = {str(check): (None, None) for check in checks}
        for check, limits in checks.items():
            if fault := _fault(limits):
                faults.append(f"{path}: {claim}: {check}: {fault}")
            else:
                bands[str(claim)][str(check)] = tuple(limits)
    if faults:
        raise DataError(*faults)
    return bands


def _fault(limits: Any) -> str | None:
    """What is wrong with a band; None if nothing is."""
    if not isinstance(limits, list) or len(limits) != 2:
        return f"{RIGHT} (got {limits!r})"
    for limit in limits:
        if limit is not None and (type(limit) not in (int, float) or not math.isfinite(limit)):
            return f"{RIGHT} (got {limits!r})"
    if limits == [None, None]:
        return "limits nothing; leave the check out if it is not to be judged"
    if None not in limits and limits[0] > limits[1]:
        return f"the lower limit lies above the upper one (got {limits!r})"
    return None


def check_known(path: str | os.PathLike[str], claim: str, bands: dict[str, Band], checks: list[str]) -> None:
    """Refuse bands of checks that a claim does not have: they would judge nothing. Raises DataError."""
    unknown = [name for name in bands if name not in checks]
    if unknown:
        raise DataError(
            *(
                f"{path}: {claim}: there is no check '{name}'{did_you_mean(name, checks)}; it has: {'; '.join(checks)}"
                for name in unknown
            )
        )


def holds(values: tuple[float, ...], interval: tuple[float, float] | None, band: Band | None) -> bool | None:
    """Does every value lie in the band, ends included; or, where there is an interval, does all of that?

    None without a band, or with an interval of which a part lies in it.
    """
    if band is None:
        return None
    low, high = (-math.inf if band[0] is None else band[0]), (math.inf if band[1] is None else band[1])
    if interval is None:
        return all(low <= value <= high for value in values)
    if low <= interval[0] and interval[1] <= high:
        return True
    return False if interval[1] < low or interval[0] > high else None
