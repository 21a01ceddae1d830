"""`llmqsim calibrate measure`: options, what it says, and a whole run with PyTorch on the CPU where there is one."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import pytest
from fake_gpu import FakeBackend, backend, schema, shapes, store, work

from llmqsim import cli_measure
from llmqsim.cli import main
from llmqsim.cli_measure import load_kit
from llmqsim.errors import UserError

command = load_kit("command")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.mark.parametrize(
    "options, said",
    [
        (["--minutes", "-1"], "--minutes: should be a number from 0"),
        (["--minutes", "nan"], "(got 'nan')"),
        (["--minutes", "inf"], "(got 'inf')"),
        (["--minutes", "half an hour"], "(got 'half an hour')"),
        (["--tables", "gem"], "unknown table (got 'gem'); did you mean 'gemm'?"),
        (["--model", "llama-3.1-8"], "did you mean 'llama-3.1-8b'?"),
        (["--model", "no/such/config.json"], "--model: no/such/config.json"),
        (["--model", "llama-3.1-8b", "--tp", "3"], "can't be split evenly over 3 GPUs"),
        (["--tp", "0"], "--tp: should be tensor parallel sizes"),
        (["--tp", "two"], "(got 'two')"),
        (["--device", "tpu"], "--device: should be auto, cuda or cpu (got 'tpu')"),
        (["--gpu", " "], "--gpu: should be the name of a GPU"),
        (["--gpu", "cpu"], "--gpu: should be the name of a GPU"),
    ],
)
def test_bad_options_are_named_and_nothing_is_written(tmp_path, capsys, options, said):
    out = tmp_path / "out"
    assert main(["calibrate", "measure", "--out", str(out), *options]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_every_fault_comes_at_once(tmp_path, capsys):
    bad = ["--minutes", "x", "--tables", "y", "--tp", "z", "--device", "w"]
    assert main(["calibrate", "measure", "--out", str(tmp_path / "out"), *bad]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_without_pytorch_it_says_what_to_do(tmp_path, capsys, monkeypatch):
    torch_kernels = load_kit("torch_kernels")
    monkeypatch.setattr(torch_kernels, "find_spec", lambda name: None)
    assert main(["calibrate", "measure", "--out", str(tmp_path / "out"), "--device", "cpu"]) == 2
    assert "PyTorch is not installed" in capsys.readouterr().err


def test_without_the_kit_it_says_where_it_looked(tmp_path, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(cli_measure.KIT)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(cli_measure, "kit_places", lambda: (tmp_path / "a", tmp_path / "b"))
    assert main(["calibrate", "measure", "--out", str(tmp_path / "out")]) == 2
    assert f"looked in {tmp_path / 'a'} and {tmp_path / 'b'}" in capsys.readouterr().err


def request(tmp_path, **changes):
    return command.parsed(command.Options(**{"out": str(tmp_path / "out"), "minutes": "0.1"} | changes))


def test_a_session_is_recorded_and_its_tables_written(tmp_path):
    said = []
    kept = store.Store(tmp_path / "out")
    fake = FakeBackend(tables=("gemm",))
    outcome = command.measure(request(tmp_path), fake, kept, said.append, fake.clock)
    assert outcome.measured == len(kept.rows) > 0
    assert any("gemm: fake_gemm (bfloat16)" in line for line in said)
    assert any("moe: no kernel here, left out" in line for line in said)
    assert "mind: nothing here is real" in said
    record = json.loads((tmp_path / "out" / "measured.json").read_text())
    assert record["sessions"][0]["versions"] == {"torch": "9.9"}
    assert record["sessions"][0]["warnings"] == ["nothing here is real"]
    text = command.report(kept)
    assert f"{len(kept.rows)} rows" in text and "calibrate fit --kernels" in text
    kept.close()


def test_no_kernel_at_all_is_refused(tmp_path):
    kept = store.Store(tmp_path / "out")
    with pytest.raises(UserError, match="no kernel here for moe"):
        command.measure(request(tmp_path, tables="moe"), FakeBackend(tables=("gemm",)), kept, lambda line: None)
    kept.close()


def test_a_dead_device_is_told_and_the_tables_are_written(tmp_path):
    def breaks(chosen, shape):
        if len(fake.prepared) == 3:
            raise backend.DeviceLost("CUDA error: an illegal memory access was encountered")

    fake, kept = FakeBackend(tables=("gemm",), breaks=breaks), store.Store(tmp_path / "out")
    with pytest.raises(UserError, match="illegal memory access.*run the same command"):
        command.measure(request(tmp_path), fake, kept, lambda line: None, fake.clock)
    kept.close()
    assert json.loads((tmp_path / "out" / "measured.json").read_text())["rows"] == {"gemm": 3}


def test_minutes_0_only_writes_the_tables(tmp_path, capsys):
    kept = store.Store(tmp_path / "out")
    fake = FakeBackend(tables=("gemm",))
    command.measure(request(tmp_path), fake, kept, lambda line: None, fake.clock)
    kept.close()
    table = next((tmp_path / "out").glob("gemm.*"))
    table.unlink()
    assert main(["calibrate", "measure", "--out", str(tmp_path / "out"), "--minutes", "0"]) == 0
    assert table.exists() and "rows, spread" in capsys.readouterr().out
    assert main(["calibrate", "measure", "--out", str(tmp_path / "empty"), "--minutes", "0"]) == 0
    assert "nothing measured yet" in capsys.readouterr().out


def test_the_engines_kernels_come_first_unless_backends_are_named():
    from fake_gpu import variant

    preferred = load_kit("torch_kernels").preferred
    vllm = variant("attention_decode")
    plain = variant("attention_decode", backend="torch")
    fp8 = variant("attention_decode", backend="flashinfer", kv_dtype="fp8")
    before, after = variant("mla", ops=("mla_gen_pre",)), variant("mla", backend="flashinfer", ops=("mla_decode",))
    assert preferred([plain, vllm, fp8, before, after]) == {vllm, fp8, before, after}
    assert preferred([plain]) == {plain}


@needs_torch
def test_a_whole_run_on_the_cpu(tmp_path, capsys):
    out = tmp_path / "out"
    asked = ["calibrate", "measure", "--out", str(out), "--device", "cpu", "--minutes", "0.1"]
    asked += ["--tables", "gemm,attention_context,attention_decode,layer_ops"]
    assert main(asked) == 0
    first = json.loads((out / "measured.json").read_text())["rows"]
    assert sum(first.values()) >= 1
    assert main(asked) == 0
    assert "device=cpu" in capsys.readouterr().err
    kept = store.Store(out)
    assert len(kept.rows) > sum(first.values()), "the second run goes on"
    for table, row in kept.rows.values():
        assert schema.faults(table, row) == []
        assert (row["gpu"], row.get("flag", "cpu")) == ("cpu", "cpu")
    kept.close()


@pytest.fixture(scope="module")
def cpu():
    made = load_kit("torch_kernels").TorchBackend("cpu")
    yield made
    made.close()


@needs_torch
@pytest.mark.parametrize("table", [name for name in schema.TABLES if name != "quantize"])
def test_every_family_runs_on_the_cpu(cpu, table):
    from fake_gpu import QUICK, plan, timer

    ran = set()
    for chosen in cpu.variants(table):
        tasks = list(plan.table_tasks(table, [chosen], shapes.Deployments(), cpu.device, QUICK))
        for op in dict.fromkeys(task.shape["op"] for task in tasks):
            own = [task for task in tasks if task.shape["op"] == op]
            cheapest = min(own, key=lambda task: work.call_seconds(table, task.shape, work.CPU))
            prepared = cpu.prepare(chosen, cheapest.shape)
            assert timer.measure(prepared, QUICK).latency_us > 0
            prepared.close()
            ran.add(op)
    assert ran


@needs_torch
def test_a_chunk_on_a_prefix_attends_to_all_before_it(cpu):
    import torch

    attention = load_kit("torch_kernels.attention")
    heads = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
    shape = {"op": "attention_context", "batch": 2, "q_len": 3, "kv_len": 7, **heads}
    call = attention._sdpa_context(cpu._env, shape)[0]
    key, value = call.__defaults__
    query = next(c.cell_contents for c in call.__closure__ if getattr(c.cell_contents, "shape", ()) == (2, 4, 3, 8))
    key, value = (t.float().repeat_interleave(2, dim=1) for t in (key, value))
    scores = query.float() @ key.transpose(2, 3) / 8**0.5
    behind = torch.arange(7)[None, :] > torch.arange(3)[:, None] + 4
    expected = torch.softmax(scores.masked_fill(behind, float("-inf")), dim=-1) @ value
    assert torch.allclose(call().float(), expected, atol=0.03)


@needs_torch
def test_grouped_experts_are_the_experts(cpu):
    import torch

    moe = load_kit("torch_kernels.moe")
    shape = {"num_tokens": 6, "hidden": 16, "inter": 32, "topk": 2, "num_experts": 4, "tp": 2, "ep": 1}
    torch.manual_seed(1)
    x, shares, choices, weights = moe._inputs(cpu._env, shape)
    torch.manual_seed(1)
    got = moe._grouped(cpu._env, shape)[0]().float()
    up, down = (w.float() for w in weights[0])
    expected = torch.zeros(6, 16)
    for token in range(6):
        for share, expert in zip(shares[token], choices[token], strict=True):
            gate, value = (up[expert] @ x[token].float()).chunk(2)
            expected[token] += share * (down[expert] @ (torch.nn.functional.silu(gate) * value))
    assert torch.allclose(got, expected, rtol=0.05, atol=0.05 * expected.abs().max())


@needs_torch
def test_weights_go_round_past_the_cache(cpu):
    env = cpu._env
    assert env.copies(0) == 1
    assert env.copies(10 * env.device.l2_bytes) == 2
    assert 3 * env.device.l2_bytes <= env.copies(2**20) * 2**20
    assert env.copies(1) == 256
    assert env.copies(env.device.memory_bytes) == 1


@needs_torch
def test_errors_are_told_apart():
    translated = load_kit("torch_kernels").translated_errors
    with pytest.raises(backend.DeviceLost), translated():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(backend.CannotMeasure, match="OutOfMemory"), translated():
        raise type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate")
    with pytest.raises(KeyboardInterrupt), translated():
        raise KeyboardInterrupt
