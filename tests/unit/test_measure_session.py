"""Sessions of the measuring kit on a fake GPU: budget, resuming, kills, kernels that fail, a device that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
from fake_gpu import (
    QUICK,
    FakeBackend,
    all_tasks,
    backend,
    device,
    measure_into,
    plan,
    schema,
    session,
    shapes,
    store,
    timer,
    variant,
    work,
)

from llmqsim.errors import DataError


def timing_of(latency_us: float) -> timer.Timing:
    return timer.Timing(latency_us, latency_us, 3, 0.0, 10)


def measured(fake: FakeBackend) -> list[str]:
    return [schema.key(chosen.table, shape | {"gpu": fake.device.gpu}) for chosen, shape in fake.prepared]


def test_a_session_ends_when_its_time_is_up(tmp_path):
    fake = FakeBackend()
    outcome, rows = measure_into(tmp_path, fake, 60.0)
    assert outcome.ended == "the time is up"
    assert 60.0 <= fake.now < 62.0
    assert outcome.measured == len(rows) == len(fake.prepared) > 100


def test_it_measures_the_beginning_of_the_plan(tmp_path):
    fake = FakeBackend()
    _, rows = measure_into(tmp_path, fake, 30.0)
    assert measured(fake) == [task.key for task in islice(all_tasks(FakeBackend()), len(rows))]


def test_resuming_goes_on_where_it_stopped(tmp_path):
    measure_into(tmp_path, first := FakeBackend(), 20.0)
    outcome, rows = measure_into(tmp_path, second := FakeBackend(), 20.0)
    assert outcome.known == len(first.prepared)
    assert not set(measured(first)) & set(measured(second)), "no row is measured twice"
    whole = [task.key for task in islice(all_tasks(FakeBackend()), len(rows))]
    assert measured(first) + measured(second) == whole
    assert set(rows) == set(whole)


def test_another_gpu_in_the_same_folder_is_another_set_of_rows(tmp_path):
    measure_into(tmp_path, FakeBackend(), 5.0)
    outcome, rows = measure_into(tmp_path, FakeBackend(gpu=device(gpu="L40S-48GB")), 5.0)
    assert outcome.known == 0
    assert {row["gpu"] for _, row in rows.values()} == {"H100-SXM-80GB", "L40S-48GB"}


def test_everything_planned_is_measured_once(tmp_path):
    few = list(islice(all_tasks(FakeBackend()), 20))
    outcome, rows = measure_into(tmp_path, FakeBackend(), 1e6, tasks=few)
    assert outcome.ended.startswith("everything") and len(rows) == 20
    outcome, _ = measure_into(tmp_path, again := FakeBackend(), 1e6, tasks=few)
    assert outcome.known == 20 and not again.prepared


def test_a_kill_loses_only_what_no_shard_holds(tmp_path):
    folder, log = tmp_path / "out", tmp_path / "log"
    root = Path(__file__).parents[2]
    script = Path(__file__).with_name("fake_gpu.py")
    paths = os.pathsep.join([str(root), str(script.parent)])
    command = [sys.executable, str(script), str(folder), str(log)]
    child = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths})
    deadline = time.monotonic() + 60
    while len(list(folder.glob("shards/*.jsonl"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = log.read_text().splitlines()
    kept = store.Store(folder)
    saved = set(kept.rows)
    kept.close()
    assert saved and saved <= set(before)
    lost = len(before) - len(saved)
    assert lost < 0.5 * len(before), "rows reach the disk as they come"
    measure_into(folder, after := FakeBackend(), 20.0)
    assert not saved & set(measured(after))


def test_an_interrupt_keeps_what_was_measured(tmp_path):
    def breaks(chosen, shape):
        if len(fake.prepared) == 7:
            raise KeyboardInterrupt

    fake = FakeBackend(breaks=breaks)
    outcome, rows = measure_into(tmp_path, fake, 60.0)
    assert outcome.ended == "interrupted" and len(rows) == 7
    assert len(measure_into(tmp_path, FakeBackend(), 0.0)[1]) == 7


def test_a_shape_that_cannot_be_measured_is_noted_and_not_tried_again(tmp_path):
    def breaks(chosen, shape):
        if chosen.table == "gemm" and shape["m"] > 1000:
            raise backend.CannotMeasure("OutOfMemoryError: too large")

    measure_into(tmp_path, FakeBackend(breaks=breaks), 60.0)
    kept = store.Store(tmp_path)
    failed = dict(kept.failed)
    kept.close()
    assert failed and all("OutOfMemory" in reason for reason in failed.values())
    _, rows = measure_into(tmp_path, again := FakeBackend(), 5.0)
    assert not set(failed) & set(measured(again))
    assert not set(failed) & set(rows)


def test_a_kernel_that_never_works_is_left_out_and_tried_again_next_time(tmp_path):
    def breaks(chosen, shape):
        if chosen.table == "gemm":
            raise backend.CannotMeasure("TypeError: this library has changed")

    outcome, rows = measure_into(tmp_path, FakeBackend(breaks=breaks), 30.0)
    assert [v.table for v in outcome.left_out] == ["gemm"]
    assert {table for table, _ in rows.values()} == {"attention_decode"}
    _, rows = measure_into(tmp_path, FakeBackend(), 30.0)
    assert {table for table, _ in rows.values()} == {"attention_decode", "gemm"}


def test_a_kernel_that_worked_before_is_not_left_out_for_a_few_bad_shapes(tmp_path):
    few = list(islice(all_tasks(FakeBackend(tables=("gemm",))), 30))
    measure_into(tmp_path, FakeBackend(), 1e6, tasks=few[:10])
    bad = {task.key for task in few[10:15]}

    def breaks(chosen, shape):
        if schema.key("gemm", shape | {"gpu": "H100-SXM-80GB"}) in bad:
            raise backend.CannotMeasure("OutOfMemoryError: too large")

    outcome, rows = measure_into(tmp_path, FakeBackend(breaks=breaks), 1e6, tasks=few)
    assert not outcome.left_out and len(rows) == 25


def test_a_dead_device_ends_the_session_and_its_shape_is_not_tried_again(tmp_path):
    def breaks(chosen, shape):
        if len(fake.prepared) == 5:
            raise backend.DeviceLost("CUDA error: an illegal memory access was encountered")

    fake = FakeBackend(breaks=breaks)
    with pytest.raises(backend.DeviceLost):
        measure_into(tmp_path, fake, 60.0)
    kept = store.Store(tmp_path)
    assert len(kept.rows) == 5 and len(kept.failed) == 1
    culprit = next(iter(kept.failed))
    kept.close()
    measure_into(tmp_path, again := FakeBackend(), 10.0)
    assert culprit not in measured(again)


def test_buffers_are_given_back_also_after_a_failure(tmp_path):
    fake = FakeBackend()
    measure_into(tmp_path, fake, 5.0)
    assert fake.open and all(prepared.closed for prepared in fake.open)


def test_eager_times_say_so_where_the_table_has_no_column_and_are_still_known(tmp_path):
    task = next(iter(plan.tasks({"moe": (variant("moe"),)}, shapes.Deployments(), device(), QUICK)))
    timing = timing_of(10.0)
    row = session.row(task, device(), timing, "eager")
    assert row["kernel"] == "fake_moe_eager"
    assert schema.key("moe", row) == task.key
    assert session.row(task, device(), timing, "graph")["kernel"] == "fake_moe"


def test_rows_are_flagged_on_a_cpu_and_beyond_the_datasheet():
    task = next(iter(plan.tasks({"gemm": (variant("gemm"),)}, shapes.Deployments(), device(), QUICK)))
    assert session.row(task, device(), timing_of(1e6), "graph")["flag"] == ""
    fast = device(peaks=work.Peaks({"bfloat16": 1e15}, 3e12))
    assert session.row(task, fast, timing_of(1e-3), "graph")["flag"] == "super_peak"
    assert session.row(task, device(gpu="cpu", is_cpu=True), timing_of(10.0), "eager")["flag"] == "cpu"


def test_conditions_and_session_are_in_the_shards(tmp_path):
    measure_into(tmp_path, FakeBackend(), 30.0)
    records = [json.loads(line) for path in sorted(tmp_path.glob("shards/*")) for line in path.read_text().splitlines()]
    conditions = [record["conditions"] for record in records if "conditions" in record]
    assert len(conditions) == len(list(tmp_path.glob("shards/*"))) > 1
    assert all(condition["sm_mhz"] == 1980.0 for condition in conditions)


def test_two_processes_cannot_use_one_folder(tmp_path):
    kept = store.Store(tmp_path)
    with pytest.raises(DataError, match="another process"):
        store.Store(tmp_path)
    kept.close()
    store.Store(tmp_path).close()


def test_shards_of_two_machines_can_be_put_together(tmp_path):
    measure_into(tmp_path / "one", FakeBackend(), 20.0)
    measure_into(tmp_path / "two", FakeBackend(gpu=device(gpu="L40S-48GB")), 15.0)
    kept = store.Store(tmp_path / "two")
    other = dict(kept.rows)
    kept.close()
    for path in (tmp_path / "two" / "shards").glob("*.jsonl"):
        path.rename(tmp_path / "one" / "shards" / f"l40s-{path.name}")
    before = set(tmp_path.glob("one/shards/*"))
    _, rows = measure_into(tmp_path / "one", FakeBackend(), 5.0)
    assert set(other) < set(rows)
    assert before < set(tmp_path.glob("one/shards/*")), "new shards go beside those that were there"
