"""Reading kernel tables: parquet files of one schema in a folder, checked, as one frame for each kernel family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from llmqsim.cost.families import FAMILIES, KEY, Family
from llmqsim.cost.forms import WEIGHT_BYTES
from llmqsim.cost.store import known_device
from llmqsim.errors import DataError, UserError, did_you_mean
from llmqsim.hardware.data import read_preset

if TYPE_CHECKING:
    import pandas as pd

MOST_FAULTS = 20
DTYPES = tuple(WEIGHT_BYTES)
KV_DTYPES = ("bfloat16", "float16", "fp8", "int8", "none")
OPTIONAL = ("kernel", "flag", "row_id", "source")
FAMILY_OF_OP = {op: family for family in FAMILIES.values() for op in family.ops}
WHOLE_POSITIVE = frozenset(
    "m n k batch q_len kv_len num_heads num_kv_heads head_dim num_gpus message_bytes num_tokens hidden inter topk "
    "num_experts tp ep n_head n_kv_head vocab nodes".split()
)


@dataclass(frozen=True)
class Part:
    """The rows of one family in one file."""

    family: Family
    path: Path
    frame: pd.DataFrame
    """columns KEY, the family's key and shape columns, `op`, `kernel`, `flag`, `row_id` (text), `latency_us`"""


def read_parts(folder: Path, *, measured: bool = True) -> Iterator[Part]:
    """Every kernel table under `folder`, nested folders included, in the order of their paths.

    measured : whether `latency_us` must be there; where it is, it is checked. Raises DataError naming file, row and
    reason.
    """
    parquet = _pyarrow()
    paths = sorted(Path(folder).rglob("*.parquet")) if Path(folder).is_dir() else []
    if not paths:
        what = "no kernel tables (*.parquet)" if Path(folder).is_dir() else "no such folder"
        raise DataError(f"{folder}: {what}; give the folder of the kernel timings with --kernels")
    for path in paths:
        yield from _read(path, parquet, measured)


def _pyarrow():
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise UserError("reading kernel tables needs pyarrow: pip install 'llmqsim[parquet]'") from None
    return parquet


def _read(path: Path, parquet, measured: bool) -> Iterator[Part]:
    try:
        frame = parquet.read_table(path).to_pandas()
    except Exception as error:  # pyarrow raises a dozen kinds for a broken file; all mean the same to the user
        raise DataError(f"{path}: not a readable parquet file ({str(error).splitlines()[0]})") from None
    needed = [*KEY, "op", *(["latency_us"] if measured else [])]
    _check_columns(path, frame, needed)
    if "row_id" not in frame:
        frame["row_id"] = np.arange(len(frame))
    frame["row_id"] = frame["row_id"].astype(str)
    for name, missing in (("kernel", ""), ("flag", ""), ("source", path.name)):
        frame[name] = frame[name].astype(object).where(frame[name].notna(), missing) if name in frame else missing
    known = frame["op"].isin(list(FAMILY_OF_OP))
    if not known.all():
        row = int(np.flatnonzero(~known)[0])
        op = str(frame["op"].iloc[row])
        raise DataError(
            f"{path}: row {row}: op: unknown operation (got '{op}'){did_you_mean(op, FAMILY_OF_OP)} "
            f"Known: {', '.join(FAMILY_OF_OP)}"
        )
    families = {FAMILY_OF_OP[str(op)].name for op in frame["op"].unique()}
    for name in sorted(families):
        family = FAMILIES[name]
        columns = [*family.key, *family.shape]
        _check_columns(path, frame, columns)
        take = frame["op"].isin(list(family.ops))
        rows = frame[take] if not take.all() else frame
        _check_values(path, rows, family, "latency_us" in frame)
        keep = dict.fromkeys([*KEY, *columns, "op", *OPTIONAL, *(["latency_us"] if "latency_us" in frame else [])])
        yield Part(family, path, rows[list(keep)])


def _check_columns(path: Path, frame, needed: list[str]) -> None:
    faults = [
        f"{path}: no column '{name}'{did_you_mean(name, frame.columns)} (has: {', '.join(map(str, frame.columns))})"
        for name in needed
        if name not in frame
    ]
    if faults:
        raise DataError(*faults)
    if not len(frame):
        raise DataError(f"{path}: no rows")


def _check_values(path: Path, rows, family: Family, measured: bool) -> None:
    faults: list[str] = []
    for name, known in (("dtype", DTYPES), ("kv_dtype", KV_DTYPES)):
        if name in family.key or name == "dtype":
            _expect(faults, path, rows, name, rows[name].isin(list(known)), f"one of {', '.join(known)}")
    devices = read_preset("devices.yaml")["devices"]
    unknown = [str(gpu) for gpu in rows["gpu"].unique() if not known_device(str(gpu))]
    if unknown:
        right = f"a measured device ({', '.join(sorted(devices))}) or a GPU preset"
        _expect(faults, path, rows, "gpu", ~rows["gpu"].isin(unknown), right)
    for name in (*KEY, *family.key):
        _expect(faults, path, rows, name, rows[name].notna(), "given")
    for name in (*family.shape, *family.key):
        if name in WHOLE_POSITIVE:
            _expect(faults, path, rows, name, _numbers(faults, path, rows, name) >= 1, "a number, at least 1")
    if measured:
        latency = _numbers(faults, path, rows, "latency_us")
        good = np.isfinite(latency) & (latency > 0)
        _expect(faults, path, rows, "latency_us", good, "microseconds above 0")
    if faults:
        rest = len(faults) - MOST_FAULTS
        raise DataError(*faults[:MOST_FAULTS], *([f"… and {rest} more"] if rest > 0 else []))


def _numbers(faults: list[str], path: Path, rows, name: str) -> np.ndarray:
    try:
        return rows[name].to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        faults.append(f"{path}: {name}: not a column of numbers (got {rows[name].iloc[0]!r})")
        return np.ones(len(rows))


def _expect(faults: list[str], path: Path, rows, name: str, good, right: str) -> None:
    bad = np.flatnonzero(~np.asarray(good))
    for at in bad[:3]:
        faults.append(f"{path}: row {rows.index[at]}: {name}: must be {right} (got {rows[name].iloc[at]!r})")
    if len(bad) > 3:
        faults.append(f"{path}: {name}: {len(bad) - 3} more rows like these")
