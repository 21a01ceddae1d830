"""Fitting and scoring kernel timings on tables made from a known physics; the public tables need ../shared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyarrow", reason="kernel tables are parquet files")

from llmqsim.calibrate.build import build
from llmqsim.calibrate.holdout import BY_HEADS, NEVER, _leaves, folds
from llmqsim.calibrate.rows import split
from llmqsim.calibrate.score import score
from llmqsim.calibrate.tables import read_parts
from llmqsim.cli import main
from llmqsim.cost.store import NEWER_VERSION, Store, _backend_distance, machine, version_order
from llmqsim.errors import DataError

SIZES = (512, 1024, 2048, 4096, 8192, 16384)
TOKENS = (1, 4, 16, 64, 128, 129, 256, 1024, 4096)


def gemms(version="0.19.0", gpu="H100-SXM-80GB", slower=1.0):
    """GEMM timings of a smooth made-up kernel: 4 us, 70 % of the peaks, a bump between 129 and 256 rows."""
    m, n, k = (a.ravel() for a in np.meshgrid(TOKENS, SIZES, SIZES, indexing="ij"))
    compute, memory = 2.0 * m * n * k / 6.9e14, 2.0 * (m * k + n * k + m * n) / 2.3e12
    bump = np.where((m > 128) & (m <= 256), 1.3, 1.0) * (1 + 0.1 * np.log2(n / 512) / 5)
    latency = (4e-6 + np.maximum(compute, memory)) * 1e6 * bump * slower
    frame = pd.DataFrame({"m": m, "n": n, "k": k, "latency_us": latency})
    fixed = {"gpu": gpu, "op": "gemm", "backend": "vllm", "backend_version": version, "dtype": "bfloat16"}
    return frame.assign(**fixed, kernel="x", source="made up", timing="graph", flag="")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    gemms().to_parquet(folder / "gemm.parquet")
    out = tmp_path_factory.mktemp("coefficients")
    build(folder, out)
    return folder, out


def saved(tmp_path, frame, name="gemm.parquet"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(path)
    return tmp_path


def fault(tmp_path, frame):
    with pytest.raises(DataError) as caught:
        build(saved(tmp_path, frame), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    return str(caught.value)


def test_measured_shapes_come_back_and_the_constants_alone_do_not_suffice(fitted):
    folder, out = fitted
    found = score(folder, Store(out))["families"]["gemm"]
    assert found["p90_percent"] < 0.2 < found["constants_only"]["p90_percent"] < found["datasheet_roofline"]["p90_percent"]


def test_shapes_that_no_fit_saw_are_predicted(fitted):
    entry = json.loads((fitted[1] / "index.json").read_text())["configurations"][0]
    assert entry["held_out"]["median_percent"] < 3 and entry["rows"] == len(gemms())


def test_a_fit_can_be_repeated_bit_for_bit(fitted, tmp_path):
    folder, out = fitted
    build(folder, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in out.iterdir()}
    for path in out.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_a_whole_block_leaves_together(fitted):
    part = next(iter(read_parts(fitted[0])))
    rows = next(iter(split(part.family, part.frame)))
    fold, c = folds(rows), rows.columns
    for n, k in ((1024, 2048), (8192, 512)):
        assert len(set(fold[(c["n"] == n) & (c["k"] == k)])) == 1
    assert NEVER not in fold


def decodes():
    """Decode timings of 1 to 32 query heads on one KV head, a made-up kernel."""
    axes = np.meshgrid((1, 2, 4, 8, 16, 32), (127, 255, 511, 1023, 2047, 4095), (1, 2, 4, 8, 16, 32), indexing="ij")
    batch, history, heads = (a.ravel() for a in axes)
    frame = pd.DataFrame({"batch": batch, "kv_history": history, "num_heads": heads, "num_kv_heads": 1})
    fixed = {"gpu": "H100-SXM-80GB", "op": "attention_decode", "backend": "vllm", "backend_version": "0.19.0"}
    frame["latency_us"] = 4.0 + batch * (history + 1) * 128 * 2 * 2 / 2.5e6 + 0.01 * heads
    return frame.assign(**fixed, dtype="bfloat16", kv_dtype="bfloat16", head_dim=128, window=0, kernel="x", flag="")


def test_a_held_out_number_of_heads_leaves_with_all_its_timings(tmp_path):
    part = next(iter(read_parts(saved(tmp_path, decodes(), "attention_decode.parquet"))))
    rows = next(iter(split(part.family, part.frame)))
    fold, heads = folds(rows), rows.columns["num_heads"]
    by_heads = [one for one in np.unique(fold) if BY_HEADS <= one < NEVER]
    assert by_heads
    for one in by_heads:
        leaves = _leaves(rows, fold, one)
        assert not set(heads[fold == one]) & set(heads[~leaves]) and leaves.sum() > (fold == one).sum()
    assert np.array_equal(_leaves(rows, fold, 0), fold == 0)


def all_reduces(backend):
    """All-reduce timings of an engine: its own kernel, then NCCL with a start of its own."""
    size, gpus = (a.ravel() for a in np.meshgrid(2.0 ** np.arange(9, 29), (2, 4, 8), indexing="ij"))
    library = size >= 2**23 if backend == "vllm" else size > 2**23
    latency = 5.0 + gpus + size / 2.5e5 + np.where(library, 15.0 + size / 1e6, 0.0)
    frame = pd.DataFrame({"num_gpus": gpus, "message_bytes": size, "latency_us": latency})
    fixed = {"gpu": "H100-SXM-80GB", "op": "all_reduce", "backend": backend, "backend_version": "1.0.0"}
    return frame.assign(**fixed, dtype="bfloat16", mode="graph", nodes=1, kernel="x", flag="")


@pytest.mark.parametrize("backend", ["vllm", "sglang"])
def test_an_engine_leaves_its_own_all_reduce_at_its_own_limit(tmp_path, backend):
    part = next(iter(read_parts(saved(tmp_path, all_reduces(backend), "collectives.parquet"))))
    rows = next(iter(split(part.family, part.frame)))
    step = rows.columns["num_gpus"] == 2
    constants = {"per_gpu_s": 1e-6, "second_stage_s": 0.0, "library_s": 1.5e-5, "library_ratio": 1.0, "t0_s": 5e-6,
                 "compute_efficiency": 1.0, "memory_efficiency": 1.0, "overlap": 2.0}
    seconds = rows.family.form(rows.config).seconds(constants, rows.columns, machine("H100-SXM-80GB"), "bfloat16")[step]
    sizes = rows.columns["message_bytes"][step]
    first = sizes[seconds - 5e-6 - sizes / 4.5e11 > 1e-5].min()
    assert first == (2**23 if backend == "vllm" else 2**24)


def test_predictions_name_every_row_in_nested_folders(fitted, tmp_path):
    frame = gemms()
    saved(tmp_path, frame.assign(row_id=[f"r{i}" for i in range(len(frame))]), "deep/er/one.parquet")
    saved(tmp_path, frame.iloc[:40], "two.parquet")
    out = tmp_path / "predicted.csv"
    argv = ["calibrate", "score", "--kernels", str(tmp_path), "--coefficients", str(fitted[1]), "--predictions", str(out)]
    assert main(argv) == 0
    written = pd.read_csv(out, dtype={"row_id": str})
    assert list(written.columns) == ["family", "row_id", "latency_us_predicted"]
    assert set(written.family) == {"gemm"} and len(written) == len(frame) + 40
    by_id = written[written.row_id.str.startswith("r")].set_index("row_id").latency_us_predicted
    measured = frame.latency_us.to_numpy()
    assert np.allclose(by_id[[f"r{i}" for i in range(len(frame))]], measured, rtol=0.005)


def test_shapes_without_times_are_predicted_and_not_scored(fitted, tmp_path, capsys):
    saved(tmp_path, gemms().drop(columns="latency_us"))
    argv = ["calibrate", "score", "--kernels", str(tmp_path), "--coefficients", str(fitted[1])]
    assert main([*argv, "--predictions", str(tmp_path / "out.csv")]) == 0
    assert len(pd.read_csv(tmp_path / "out.csv")) == len(gemms())
    assert main(argv) == 2 and "no column 'latency_us'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "borrowed"),
    [
        ({"backend_version": "0.20.1"}, "backend_version 0.20.1 from 0.19.0"),
        ({"backend": "sglang"}, "backend sglang from vllm"),
        ({"gpu": "H200-SXM-141GB"}, "gpu H200-SXM-141GB from H100-SXM-80GB"),
    ],
)
def test_what_was_never_fitted_comes_from_the_nearest_relative(fitted, tmp_path, change, borrowed):
    told = score(saved(tmp_path, gemms().assign(**change)), Store(fitted[1]))
    assert told["configurations"][0]["borrowed"] == [borrowed]
    assert told["families"]["gemm"]["rows_from_a_relative"] == len(gemms())
    assert told["families"]["gemm"]["median_percent"] < 40


def test_an_older_version_is_nearer_than_a_newer_one(tmp_path):
    for version, slower in (("0.14.0", 1.5), ("0.24.0", 3.0)):
        saved(tmp_path, gemms(version, slower=slower), f"in/{version}.parquet")
    build(tmp_path / "in", tmp_path / "out")
    told = score(saved(tmp_path / "next", gemms("0.23.0", slower=1.5)), Store(tmp_path / "out"))
    assert told["configurations"][0]["borrowed"] == ["backend_version 0.23.0 from 0.14.0"]


def test_of_two_versions_far_behind_the_newer_one_is_nearer():
    wanted = {"backend": "trtllm", "backend_version": "9.9.9"}
    apart = [_backend_distance({"backend": "trtllm", "backend_version": v}, wanted) for v in ("1.2.0rc5", "1.3.0rc20")]
    assert apart[0] > apart[1] and max(apart) < NEWER_VERSION


def test_versions_sort_as_releases_do():
    order = ["0.5.6", "0.5.6.post2", "0.5.9", "0.5.10", "1.2.0rc5", "1.3.0rc10", "1.3.0rc20", "1.3.0"]
    assert sorted(order, key=version_order) == order


def test_beyond_the_measured_range_the_form_goes_on_and_is_counted(fitted, tmp_path):
    frame = gemms().iloc[:50].assign(m=65536)
    told = score(saved(tmp_path, frame.assign(latency_us=frame.m * 1e-6 * frame.n * frame.k / 3e2)), Store(fitted[1]))
    assert told["families"]["gemm"]["rows_outside_the_measured_range"] == 50


def test_wrong_columns_are_named(tmp_path):
    assert "no column 'latency_us'" in fault(tmp_path, gemms().rename(columns={"latency_us": "latency"}))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("latency_us", -1.0, "row 7: latency_us: must be microseconds above 0 (got"),
        ("latency_us", float("nan"), "row 7: latency_us"),
        ("gpu", "H1000", "row 7: gpu: must be a measured device"),
        ("dtype", "bf17", "row 7: dtype: must be one of bfloat16"),
        ("m", 0, "row 7: m: must be a number, at least 1"),
        ("op", "gem", "row 7: op: unknown operation (got 'gem'); did you mean 'gemm'?"),
    ],
)
def test_a_bad_row_is_named(tmp_path, column, value, said):
    frame = gemms()
    frame.loc[7, column] = value
    message = fault(tmp_path, frame)
    assert said in message and "gemm.parquet" in message


@pytest.mark.parametrize(("factor", "unit"), [(1e-3, "milliseconds"), (1e3, "nanoseconds")])
def test_a_unit_off_by_a_thousand_is_noticed(tmp_path, factor, unit):
    frame = gemms()
    message = fault(tmp_path, frame.assign(latency_us=frame.latency_us * factor))
    assert f"must be microseconds (these look like {unit})" in message


def test_a_handful_of_rows_is_not_a_fit(tmp_path):
    assert "5 rows; at least 12 are needed" in fault(tmp_path, gemms().iloc[:5])


def test_sizes_that_cannot_tell_launch_from_rate_are_refused(tmp_path):
    frame = gemms()
    assert "can't be told apart: the rows have 2 sizes only" in fault(tmp_path, frame[frame.m.isin([16, 64])])


@pytest.mark.parametrize("what", ["missing", "empty", "broken"])
def test_folders_without_tables(tmp_path, capsys, what):
    folder = tmp_path / what
    if what != "missing":
        folder.mkdir()
    if what == "broken":
        (folder / "x.parquet").write_bytes(b"no parquet")
    assert main(["calibrate", "score", "--kernels", str(folder)]) == 2
    assert str(folder) in capsys.readouterr().err


def spoiled(folder):
    """A good table of 486 rows, of which 5 are spoiled; an empty one, a broken one, and one of another unit."""
    good = gemms().astype({"m": object})
    good.loc[[3, 4], "dtype"] = "sq"
    good.loc[9, "latency_us"] = float("nan")
    good.loc[11, "op"] = "conv"
    good.loc[13, "m"] = "many"
    good["m"] = good["m"].astype(str)
    good.to_parquet(folder / "gemm.parquet")
    gemms().iloc[:0].to_parquet(folder / "empty.parquet")
    (folder / "broken.parquet").write_bytes(b"no parquet")
    gemms().drop(columns=["n"]).to_parquet(folder / "narrow.parquet")
    gemms().assign(latency_us=gemms().latency_us / 1e3).to_parquet(folder / "ms.parquet")


def test_a_score_leaves_out_what_it_can_not_use_and_says_so(fitted, tmp_path, capsys):
    """The rows that stay are those of the whole table, so their errors are: 486 rows less 5 spoiled ones."""
    spoiled(tmp_path)
    command = ["calibrate", "score", "--kernels", str(tmp_path), "--coefficients", str(fitted[1])]
    assert main([*command, "--json", str(tmp_path / "o.json")]) == 0
    said = capsys.readouterr().out
    told = json.loads((tmp_path / "o.json").read_text())
    assert told["families"]["gemm"]["rows"] == len(gemms()) - 5 and told["families"]["gemm"]["p90_percent"] < 0.2
    by_file = {}
    for one in told["left_out"]:
        by_file.setdefault(Path(one["file"]).name, []).append((one["rows"], " ".join(one["reasons"])))
    assert [rows for rows, _ in by_file["gemm.parquet"]] == [1, 4]
    for words in (
        "row 3 (and 1 more): dtype: must be one of bfloat16", "(got 'sq')", "row 9: latency_us", "row 13: m: must be",
        "row 11: op: unknown operation (got 'conv')", "empty.parquet: no rows", "broken.parquet: not a readable",
        "no column 'n'", "like milliseconds", f"left out: {5 + 2 * len(gemms()):,} rows of 5 files, 1 of them",
    ):  # fmt: skip
        assert words in said
    assert by_file["broken.parquet"][0][0] is None and by_file["ms.parquet"][0][0] == len(gemms())


def test_a_fit_refuses_what_a_score_leaves_out_unless_it_is_told_to_go_on(tmp_path, capsys):
    spoiled(tmp_path)
    command = ["calibrate", "fit", "--kernels", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(command) == 2 and not (tmp_path / "out").exists()
    assert main([*command, "--leave-out"]) == 0
    assert "left out: " in capsys.readouterr().out and (tmp_path / "out" / "index.json").is_file()


def test_a_score_of_nothing_is_an_error(fitted, tmp_path, capsys):
    gemms().assign(dtype="sq").to_parquet(tmp_path / "gemm.parquet")
    gemms().iloc[:0].to_parquet(tmp_path / "empty.parquet")
    command = ["calibrate", "score", "--kernels", str(tmp_path), "--coefficients", str(fitted[1])]
    assert main([*command, "--predictions", str(tmp_path / "p.csv")]) == 2
    said = capsys.readouterr().err
    assert "(got 'sq')" in said and "empty.parquet: no rows" in said and not (tmp_path / "p.csv").exists()


PUBLIC = Path(__file__).parents[2].parent / "shared" / "data" / "kernels"


@pytest.mark.long
@pytest.mark.skipif(not PUBLIC.is_dir(), reason="needs the measured kernel timings in ../shared/data/kernels")
def test_the_shipped_coefficients_are_those_of_the_public_tables(tmp_path):
    """The same configurations, errors on unseen shapes, and tables.

    Least squares stop at other last digits on other processors (NumPy's exp and log differ by their vector
    instructions), and where constants hardly matter, by more: 0.4 % of the table's cells between two kinds of processor,
    and 0.05 points of an error. Other timings or another fit would move nearly all of them.
    """
    build(PUBLIC, tmp_path)
    shipped = Path(__file__).parents[2] / "llmqsim" / "presets" / "kernels"
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in shipped.iterdir()}
    made, given = (json.loads((folder / "index.json").read_text()) for folder in (tmp_path, shipped))
    assert {key: made[key] for key in ("format", "sources", "inputs", "not_fitted")} == {
        key: given[key] for key in ("format", "sources", "inputs", "not_fitted")
    }
    for one, other in zip(made["configurations"], given["configurations"], strict=True):
        assert one.keys() == other.keys()
        assert all(one[key] == other[key] for key in one if key not in ("constants", "held_out")), other["config"]
        assert one["constants"].keys() == other["constants"].keys()
        assert one["held_out"] == pytest.approx(other["held_out"], abs=0.1), other["config"]
    moved = cells = 0
    for path in shipped.glob("*.npz"):
        with np.load(tmp_path / path.name) as one, np.load(path) as other:
            assert one.files == other.files, path.name
            for name in other.files:
                assert one[name].shape == other[name].shape and one[name].dtype == other[name].dtype, (path.name, name)
                moved, cells = moved + int((one[name] != other[name]).sum()), cells + one[name].size
    assert moved <= 0.01 * cells
