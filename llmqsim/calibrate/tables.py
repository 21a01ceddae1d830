"""Reading kernel tables: parquet files of one schema in a folder, checked, as one frame for each kernel family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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
    ("m", "n", "k", "batch", "q_len", "kv_len", "num_heads", "num_kv_heads", "head_dim", "num_gpus", "message_bytes",
     "num_tokens", "hidden", "inter", "topk", "num_experts", "tp", "ep", "n_head", "n_kv_head", "vocab", "nodes")
)  # fmt: skip


NOT_NEGATIVE = frozenset(("kv_history", "window"))


@dataclass(frozen=True)
class Part:
    """The rows of one family in one file."""

    family: Family
    path: Path
    frame: pd.DataFrame
    """columns KEY, the family's key and shape columns, `op`, `kernel`, `flag`, `row_id` (text), `latency_us`"""


@dataclass(frozen=True)
class LeftOut:
    """Rows of one file that can't be used, and why. rows : None where that can't be known (no table at all).

    reasons : sentences, each with file, row, column, value and what would be right; at most MOST_FAULTS, and a count.
    """

    path: Path
    rows: int | None
    reasons: tuple[str, ...]


@dataclass
class Sieve:
    """What becomes of rows that can't be used. strict : raise; else keep what was left out, and go on."""

    strict: bool = True
    left_out: list[LeftOut] = field(default_factory=list)

    def drop(self, path: Path, rows: int | None, faults: list[str]) -> None:
        """Leave `rows` rows of a file out for these faults. Raises DataError where the sieve is strict."""
        rest = len(faults) - MOST_FAULTS
        told = (*faults[:MOST_FAULTS], *([f"… and {rest} more"] if rest > 0 else []))
        if self.strict:
            raise DataError(*told)
        self.left_out.append(LeftOut(path, rows, told))


def read_parts(folder: Path, *, measured: bool = True, sieve: Sieve | None = None) -> Iterator[Part]:
    """Every kernel table under `folder`, nested folders included, in the order of their paths.

    measured : whether `latency_us` must be there; where it is, it is checked. sieve : what becomes of rows that can't
    be used; default: DataError for the first file that has some. Raises DataError naming file, row, value and what
    would be right, also where nothing is left.
    """
    sieve = sieve or Sieve()
    parquet = _pyarrow()
    paths = sorted(Path(folder).rglob("*.parquet")) if Path(folder).is_dir() else []
    if not paths:
        what = "no kernel tables (*.parquet)" if Path(folder).is_dir() else "no such folder"
        raise DataError(f"{folder}: {what}; give the folder of the kernel timings with --kernels")
    left = False
    for path in paths:
        for part in _read(path, parquet, measured, sieve):
            left = True
            yield part
    if not left:
        raise DataError(*(reason for one in sieve.left_out for reason in one.reasons))


def _pyarrow():
    try:
        from pyarrow import parquet
    except ImportError:
        raise UserError("reading kernel tables needs pyarrow: pip install 'llmqsim[parquet]'") from None
    return parquet


def _read(path: Path, parquet, measured: bool, sieve: Sieve) -> Iterator[Part]:
    try:
        frame = parquet.read_table(path).to_pandas()
    except Exception as error:  # noqa: BLE001 pyarrow raises a dozen kinds for a broken file; all mean the same to the user
        sieve.drop(path, None, [f"{path}: not a readable parquet file ({str(error).splitlines()[0]})"])
        return
    needed = [*KEY, "op", *(["latency_us"] if measured else [])]
    if faults := _column_faults(path, frame, needed):
        sieve.drop(path, len(frame), faults)
        return
    if "row_id" not in frame:
        frame["row_id"] = np.arange(len(frame))
    frame["row_id"] = frame["row_id"].astype(str)
    for name, missing in (("kernel", ""), ("flag", ""), ("source", path.name)):
        frame[name] = frame[name].astype(object).where(frame[name].notna(), missing) if name in frame else missing
    known = frame["op"].isin(list(FAMILY_OF_OP))
    if not known.all():
        sieve.drop(path, int((~known).sum()), _op_faults(path, frame, known))
        frame = frame[known]
    families = {FAMILY_OF_OP[str(op)].name for op in frame["op"].unique()}
    for name in sorted(families):
        family = FAMILIES[name]
        columns = [*family.key, *family.shape]
        take = frame["op"].isin(list(family.ops))
        rows = frame[take] if not take.all() else frame
        if faults := _column_faults(path, frame, columns):
            sieve.drop(path, len(rows), faults)
            continue
        has_times = "latency_us" in frame
        rows = _usable(path, rows, family, has_times, sieve)
        keep = dict.fromkeys([*KEY, *columns, "op", *OPTIONAL, *(["latency_us"] if has_times else [])])
        if len(rows):
            yield Part(family, path, rows[list(keep)])


def _column_faults(path: Path, frame: pd.DataFrame, needed: list[str]) -> list[str]:
    """Columns that are missing; or that there are no rows."""
    faults = [
        f"{path}: no column '{name}'{did_you_mean(name, frame.columns)} (has: {', '.join(map(str, frame.columns))})"
        for name in needed
        if name not in frame
    ]
    return faults or ([] if len(frame) else [f"{path}: no rows; at least one timing was expected"])


def _op_faults(path: Path, frame: pd.DataFrame, known) -> list[str]:
    """One sentence an operation that no family has."""
    faults = []
    for op, rows in frame[~known].groupby(frame["op"].astype(str)[~known], sort=False):
        more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
        faults.append(
            f"{path}: row {rows.index[0]}{more}: op: unknown operation (got '{op}')"
            f"{did_you_mean(str(op), FAMILY_OF_OP) or '.'} Known: {', '.join(FAMILY_OF_OP)}"
        )
    return faults


def _usable(path: Path, rows: pd.DataFrame, family: Family, measured: bool, sieve: Sieve) -> pd.DataFrame:
    """The rows whose values can be used, numbers as numbers; the others are left out."""
    faults: list[str] = []
    good = np.ones(len(rows), dtype=bool)

    def expect(name: str, fits, right: str) -> None:
        nonlocal good
        _expect(faults, path, rows, name, fits, right)
        good &= np.asarray(fits)

    for name, known in (("dtype", DTYPES), ("kv_dtype", KV_DTYPES)):
        if name in family.key or name == "dtype":
            expect(name, rows[name].isin(list(known)), f"one of {', '.join(known)}")
    devices = read_preset("devices.yaml")["devices"]
    unknown = [str(gpu) for gpu in rows["gpu"].unique() if not known_device(str(gpu))]
    if unknown:
        right = f"a measured device ({', '.join(sorted(devices))}) or a GPU preset"
        expect("gpu", ~rows["gpu"].astype(str).isin(unknown), right)
    for name in (*KEY, *family.key):
        expect(name, rows[name].notna(), "given")
    numbers = {}
    for name in (*family.shape, *family.key):
        if name in WHOLE_POSITIVE or name in NOT_NEGATIVE:
            least = 1 if name in WHOLE_POSITIVE else 0
            numbers[name] = _numbers(rows, name)
            expect(name, np.isfinite(numbers[name]) & (numbers[name] >= least), f"a number, at least {least}")
    if measured:
        numbers["latency_us"] = latency = _numbers(rows, "latency_us")
        expect("latency_us", np.isfinite(latency) & (latency > 0), "microseconds above 0")
    if good.all():
        return rows
    sieve.drop(path, int((~good).sum()), faults)
    texts = {name: values[good] for name, values in numbers.items() if rows[name].dtype == object}
    return rows[good].assign(**texts)


def _numbers(rows: pd.DataFrame, name: str) -> np.ndarray:
    """A column as float64; NaN where it holds no number."""
    import pandas as pd

    return pd.to_numeric(rows[name], errors="coerce").to_numpy(dtype=np.float64)


def _expect(faults: list[str], path: Path, rows: pd.DataFrame, name: str, good, right: str) -> None:
    bad = np.flatnonzero(~np.asarray(good))
    seen: dict[str, list[int]] = {}
    for at in bad:
        seen.setdefault(repr(rows[name].iloc[at]), []).append(at)
    for value, places in list(seen.items())[:3]:
        more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
        faults.append(f"{path}: row {rows.index[places[0]]}{more}: {name}: must be {right} (got {value})")
    if len(seen) > 3:
        rest = sum(map(len, list(seen.values())[3:]))
        faults.append(f"{path}: {name}: {rest} more rows with other values like these")
