"""The tables of the measuring kit: the schema of the published ones, whole files, clear words for damaged ones."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from fake_gpu import FakeBackend, measure_into, schema, store

from llmqsim.cli_measure import load_kit
from llmqsim.errors import DataError

tables = load_kit("tables")
ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT.parent / "shared" / "data" / "kernels"
ALL = tuple(schema.TABLES)


def filled(folder: Path, seconds: float = 40.0, names=ALL) -> store.Store:
    """A store with rows of every table; the caller closes it."""
    measure_into(folder, FakeBackend(tables=names), seconds)
    return store.Store(folder)


@pytest.mark.parametrize("table", ALL)
def test_columns_and_types_are_those_of_the_published_tables(table, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    if not PUBLISHED.is_dir():
        pytest.skip("../shared/data/kernels is not here")
    kept = filled(tmp_path, names=(table,))
    tables.write(kept, parquet=True)
    kept.close()
    ours, theirs = (parquet.read_schema(folder / f"{table}.parquet") for folder in (tmp_path, PUBLISHED))
    assert ours.names == theirs.names
    assert [str(field.type) for field in ours] == [str(field.type) for field in theirs]


def test_csv_where_there_is_no_pyarrow(tmp_path):
    kept = filled(tmp_path)
    written = tables.write(kept, parquet=False)
    assert {path.name for path in written} == {f"{table}.csv" for table in ALL}
    for path in written:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert tuple(rows[0]) == schema.TABLES[path.stem]
        assert len(rows) == sum(table == path.stem for table, _ in kept.rows.values()) > 0
        assert all(float(row["latency_us"]) > 0 for row in rows)
    kept.close()


def test_only_one_format_stays_lest_rows_count_twice(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    kept = filled(tmp_path, names=("gemm",))
    tables.write(kept, parquet=False)
    tables.write(kept, parquet=True)
    kept.close()
    assert (tmp_path / "gemm.parquet").exists() and not (tmp_path / "gemm.csv").exists()


@pytest.mark.parametrize("parquet", [True, False])
def test_the_same_rows_give_the_same_files_in_whatever_sessions_they_came(tmp_path, parquet):
    if parquet:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    one = filled(tmp_path / "one", 20.0)
    for _ in range(4):
        measure_into(tmp_path / "many", FakeBackend(tables=ALL), 5.0)
    many = store.Store(tmp_path / "many")
    shared = {key: one.rows[key] for key in one.rows if key in many.rows}
    one.rows, many.rows = dict(reversed(shared.items())), dict(shared)
    assert len(shared) > 50
    for first, second in zip(tables.write(one, parquet), tables.write(many, parquet), strict=True):
        assert first.read_bytes() == second.read_bytes()
    one.close()
    many.close()


def test_the_record_says_how_rows_were_made(tmp_path):
    kept = filled(tmp_path, names=("gemm",))
    kept.note_session({"gpu": "H100-SXM-80GB", "versions": {"torch": "9.9"}})
    tables.write(kept, parquet=False)
    record = json.loads((tmp_path / "measured.json").read_text())
    assert record["rows"] == {"gemm": len(kept.rows)}
    assert record["sessions"][-1]["versions"] == {"torch": "9.9"}
    assert record["conditions"][0]["sm_mhz"] == 1980.0
    kept.close()


def test_the_fitting_scripts_read_what_the_kit_writes(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    if not (ROOT / "calibration" / "kernel_rows.py").is_file():
        pytest.skip("calibration/kernel_rows.py is not here")
    monkeypatch.syspath_prepend(str(ROOT / "calibration"))
    sys.modules.pop("kernel_rows", None)
    import kernel_rows

    kept = filled(tmp_path, 120.0)
    tables.write(kept, parquet=True)
    kept.close()
    where = (tmp_path, "H100-SXM-80GB", "9.9")
    assert len(kernel_rows.gemm(*where, 50 * 2**20)) > 50
    assert len(kernel_rows.prefill(*where, "bfloat16")) > 20
    assert len(kernel_rows.decode(*where, "bfloat16", 50 * 2**20)) > 20
    assert len(kernel_rows.all_reduce(*where)) > 3


def first_shard(folder: Path) -> Path:
    return sorted(folder.glob("shards/*.jsonl"))[0]


@pytest.mark.parametrize(
    "damage, said",
    [
        (lambda text: text[: len(text) // 2], "no JSON"),
        (lambda text: "[]\n" + text, "not a record"),
        (lambda text: text.replace('"latency_us": ', '"latency_us": -'), "latency_us should be positive"),
        (lambda text: text.replace('"m": ', '"mm": '), "no value for m; gemm: unknown columns mm"),
        (lambda text: text.replace('"table": "gemm"', '"table": "gem"'), "no known table"),
        (lambda text: text.replace('"n_rep": ', '"n_rep": "x", "n_rep_": '), "n_rep should be int32"),
        (lambda text: text.replace('\\"gpu\\": \\"H', '\\"gpu\\": \\"X'), "the key is not that of the row"),
    ],
)
def test_a_damaged_shard_is_named_with_its_line(tmp_path, damage, said):
    filled(tmp_path, 20.0, ("gemm",)).close()
    path = first_shard(tmp_path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError) as error:
        store.Store(tmp_path)
    assert said in str(error.value) and f"{path}:" in str(error.value) and "move this file away" in str(error.value)
    path.unlink()
    store.Store(tmp_path).close()


def test_binary_shards_and_leftovers(tmp_path):
    filled(tmp_path, 20.0, ("gemm",)).close()
    first_shard(tmp_path).with_name(".000099.jsonl.tmp").write_text('{"key": "half a')
    kept = store.Store(tmp_path)
    assert not list(tmp_path.glob("shards/.*")), "what a kill left half written is swept away"
    kept.close()
    first_shard(tmp_path).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="can't be read as text"):
        store.Store(tmp_path)


def test_tables_of_others_are_never_overwritten(tmp_path):
    (tmp_path / "gemm.parquet").write_bytes(b"precious")
    with pytest.raises(DataError, match="did not write"):
        store.Store(tmp_path)
    assert not (tmp_path / "shards").exists()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(DataError, match="is a file"):
        store.Store(tmp_path / "out")
