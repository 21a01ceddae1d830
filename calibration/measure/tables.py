"""Measured rows as tables (Parquet where pyarrow is installed, else CSV), and `measured.json`: how they were made."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import schema
from .store import Store

RECORD = "measured.json"


def has_parquet() -> bool:
    """Whether Parquet can be written here."""
    from importlib.util import find_spec

    return find_spec("pyarrow") is not None


def write(store: Store, parquet: bool | None = None) -> list[Path]:
    """Write all rows of a store, one file a table, sorted by what they measure; the same rows give the same files.

    Each file appears whole or not at all; a table of the other format is then removed, lest rows count twice.
    """
    as_parquet = has_parquet() if parquet is None else parquet
    by_table: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for key, (table, row) in store.rows.items():
        by_table.setdefault(table, []).append((key, row))
    written = []
    for table in schema.TABLES:
        if table in by_table:
            rows = [row for _, row in sorted(by_table[table], key=lambda pair: pair[0])]
            content = parquet_bytes(table, rows) if as_parquet else csv_bytes(table, rows)
            written.append(store.folder / f"{table}.{'parquet' if as_parquet else 'csv'}")
            _replace(written[-1], content)
            (store.folder / f"{table}.{'csv' if as_parquet else 'parquet'}").unlink(missing_ok=True)
    _replace(store.folder / RECORD, (json.dumps(_record(store), indent=2) + "\n").encode())
    return written


def csv_bytes(table: str, rows: Sequence[dict[str, Any]]) -> bytes:
    """A table as CSV, UTF-8, header first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=schema.TABLES[table], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def parquet_bytes(table: str, rows: Sequence[dict[str, Any]]) -> bytes:
    """A table as Parquet (zstd) with the column types of the published tables."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {schema.TEXT: pa.dictionary(pa.int8(), pa.string()), schema.COUNT: pa.int32(), schema.REAL: pa.float32()}
    columns = {}
    for column in schema.TABLES[table]:
        kind = schema.kind(column)
        plain = pa.array([row[column] for row in rows], type=pa.string() if kind == schema.TEXT else types[kind])
        columns[column] = plain.dictionary_encode().cast(types[kind]) if kind == schema.TEXT else plain
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _record(store: Store) -> dict[str, Any]:
    counts = {table: sum(1 for t, _ in store.rows.values() if t == table) for table in schema.TABLES}
    return {
        "rows": {table: count for table, count in counts.items() if count},
        "sessions": store.sessions,
        "conditions": store.conditions,
        "not_measured": [{"what": key, "why": reason} for key, reason in sorted(store.failed.items())],
    }


def _replace(target: Path, content: bytes) -> None:
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, target)
