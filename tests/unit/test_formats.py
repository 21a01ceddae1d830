"""Files of other programs and stamps of other units: never read as something else, refused by name with what to do.

The shapes are those that the programs publish: BurstGPT, Azure, Mooncake and ShareGPT of their releases, Prometheus'
exposition format, Locust's `--csv`, OTLP JSON. None of the expectations was read off this code.
"""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from llmqsim.cli import main
from llmqsim.errors import DataError, UserError
from llmqsim.metrics.attribution import read_requests
from llmqsim.metrics.events import read_events
from llmqsim.scenario.load import from_mapping
from llmqsim.simulation import prepare, simulate
from llmqsim.validate.groups import read_closed_loop
from llmqsim.workload.fit import fit_file
from llmqsim.workload.table_file import load_table
from llmqsim.workload.trace import read_trace

HEAD = "arrival_s,prompt_tokens,output_tokens\n"
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,230,1317,Conversation log\n"
)
FOREIGN = {
    "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n": ("Prometheus", "single requests"),
    'vllm:num_requests_running{model="a"} 3.0\n': ("Prometheus", "single requests", "two scrapes"),
    '{"status":"success","data":{"resultType":"matrix","result":[]}}': ("Prometheus", "single requests"),
    "Type,Name,Request Count,Failure Count,Median Response Time\n": ("statistics of Locust", "requests"),
    "Timestamp,User Count,Type,Name,Requests/s,Failures/s\n1,5,POST,/v1,5,0\n": ("history of Locust", "requests"),
    "timeStamp,elapsed,label,responseCode\n1,5,a,200\n": ("JMeter", "token counts"),
    '{"data": [{"traceID": "a", "spans": [{"traceID": "a", "spanID": "b"}]}]}': ("Jaeger", "span"),
    "client_id,window_start_s,field,value,prob\n0,0,prompt_tokens,45,1\n": ("lengths of ServeGen", "rates"),
    '{"mean_ttft_ms": 3, "request_throughput": 4, "mean_e2e_latency_ms": 9}': ("SGLang", "llmqsim validate"),
    '{"a": {"b": 1}}': ("JSON (keys a, b)", "Expected: a trace"),
    "request,arrival,time,tokens\na,0,0.1,1\n": ("measured events", "llmqsim metrics"),
    "kind: bins\nprompt: {}\n": ("length table", "lengths: {file"),
    "model: llama-3.1-8b\ngpu: h100-sxm\n": ("a scenario", "llmqsim run"),
    "<!DOCTYPE html><html></html>": ("a page", "download"),
    "version https://git-lfs.github.com/spec/v1\noid sha256:0\n": ("git-lfs", "git lfs pull"),
    HEAD.replace(",", " ") + "0 1 1\n": ("spaces", "separate columns by commas"),
    HEAD.replace(",", ";") + "0,5;1;1\n": ("arrival_s", "'0,5'", "decimal comma"),
}


def refusal(read, path) -> str:
    with pytest.raises(UserError) as error:
        read(path)
    assert len(error.value.faults) == 1 and str(path) in error.value.faults[0]
    return error.value.faults[0]


@pytest.mark.parametrize("text", FOREIGN, ids=lambda text: FOREIGN[text][0])
def test_a_trace_of_another_format_is_refused_by_its_name(tmp_path, text):
    path = tmp_path / "t.csv"
    for content in (text.encode(), gzip.compress(text.encode())):
        path.write_bytes(content)
        said = refusal(read_trace, path)
        assert all(word in said for word in FOREIGN[text])
        assert "Total tokens'?" not in said


@pytest.mark.parametrize("raw", [b"PAR1\x15\x00", b"PK\x03\x04\x00", b"SQLite format 3\x00", "a,b\n".encode("utf-16")])
def test_a_binary_file_is_named(tmp_path, raw):
    (tmp_path / "t.csv").write_bytes(raw)
    said = refusal(read_trace, tmp_path / "t.csv")
    assert any(word in said for word in ("Parquet", "spreadsheet", "SQLite", "UTF-16")) and "Expected: a trace" in said


def test_whoever_reads_a_table_names_the_same_formats(tmp_path):
    path = tmp_path / "t.csv"
    readers = (read_events, read_requests, read_closed_loop, load_table)
    for text, word in ((BURSTGPT, "BurstGPT"), ("# TYPE a gauge\na 1\n", "Prometheus"), ("a\tb\n1\t2\n", "tabs")):
        path.write_text(text)
        assert all(word in refusal(read, path) for read in readers)
    with pytest.raises(UserError, match="Prometheus"):
        path.write_text("# TYPE a gauge\na 1\n")
        fit_file(path, tmp_path / "o.yaml")
    assert not (tmp_path / "o.yaml").exists()


def test_a_missing_column_is_sought_by_what_others_call_it_and_never_in_a_total(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("ts,input_tokens,Response tokens,Total tokens\n0,1,2,3\n")
    with pytest.raises(DataError) as error:
        read_trace(path)
    hints = [fault.split("did you mean ")[1].split("?")[0] for fault in error.value.faults]
    assert hints == ["'ts'", "'input_tokens'", "'Response tokens'"]
    path.write_text("arrival_s,prompt_tokens,total_tokens\n0,1,3\n")
    assert "did you mean" not in refusal(read_trace, path)


@pytest.mark.parametrize(
    ("stamps", "unit", "said"),
    [
        # 4 requests in 610: one in 203 s, or 4.9 a second in milliseconds
        (["0", "120", "340", "610"], "ms", "one request every 203.3 s; as milliseconds they are 4.918 a second"),
        (["0", "120.5", "340.25", "610"], "ms", "as milliseconds"),
        (["0", "120000", "340000", "610000"], "us", "as microseconds they are 4.918 a second"),
        (["0", "120000000", "340000000", "610000000"], "ns", "as nanoseconds"),
        (["1700000000", "1700000001"], "s", "Unix time in seconds (2023-11-14 22:13:20 UTC)"),
        (["1700000000000", "1700000000120"], "ms", "Unix time in milliseconds (2023-11-14 22:13:20 UTC)"),
        (["1700000000000000", "1700000000120000"], "us", "Unix time in microseconds"),
        (["1700000000000000000", "1700000000120000000"], "ns", "Unix time in nanoseconds"),
    ],
)
def test_stamps_that_are_no_seconds_wait_for_their_unit(tmp_path, stamps, unit, said):
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "".join(f"{stamp},10,5\n" for stamp in stamps))
    told = refusal(read_trace, path)
    assert said in told and f"workload.trace.time_unit: {unit}" in told and "arrival_s" in told and stamps[0] in told
    per = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    right = (np.array(stamps, dtype=float) - float(stamps[0])) / per
    assert read_trace(path, time_unit=unit).arrival_s == pytest.approx(right, abs=1e-6)
    path.write_text(path.read_text().replace("arrival_s", f"arrival_{unit}"))
    if unit != "s":
        assert read_trace(path).arrival_s == pytest.approx(right, abs=1e-6)
    assert len(read_trace(path, need_times=False)) == len(stamps)


def test_a_stated_unit_that_can_not_be_is_refused_and_one_that_can_is_believed(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "1700000000000,1,1\n")
    with pytest.raises(DataError, match="can't be seconds; as Unix time in milliseconds it is 2023-11-14 22:13:20 UTC"):
        read_trace(path, time_unit="s")
    with pytest.raises(UserError, match="unknown unit .got 'msec'.*Known: auto, ms, ns, s, us"):
        read_trace(path, time_unit="msec")
    path.write_text(HEAD + "100,1,1\n4000,1,1\n")
    assert read_trace(path, time_unit="s").arrival_s.tolist() == [100, 4000]  # sparse, but stated: as written
    path.write_text("arrival_ms,prompt_tokens,output_tokens\n1,1,1\n")
    assert read_trace(path, time_unit="ms").arrival_s.tolist() == [0.001]
    with pytest.raises(DataError, match="arrival_ms: its name says milliseconds, workload.trace.time_unit: s says seconds"):
        read_trace(path, time_unit="s")
    path.write_text("arrival_ms,arrival_s,prompt_tokens,output_tokens\n1,1,1,1\n")
    with pytest.raises(DataError, match="columns arrival_ms and arrival_s are both arrivals"):
        read_trace(path)


def test_what_may_be_seconds_or_milliseconds_alike_is_told(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "0,1,1\n3,1,1\n9,1,1\n")
    told = read_trace(path).doubt
    assert "read as seconds (0.222 req/s)" in told and "time_unit: ms" in told
    path.write_text(HEAD + '0,1,1\n"3.5",1,1\n9,1,1\n')
    assert read_trace(path).doubt == told
    assert read_trace(path, time_unit="s").doubt == "" and read_trace(path, time_unit="ms").doubt == ""
    scenario = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "workload": {"trace": {"file": str(path)}}}
    (caveat,) = prepare(from_mapping(scenario)).caveats()
    assert (caveat.code, caveat.text) == ("time_unit", told)
    path.write_text(HEAD + "0,1,1\n0.5,1,1\n1.9,1,1\n")
    assert read_trace(path).doubt == ""


def test_a_stated_unit_in_which_the_stamps_are_no_unix_times_is_told(tmp_path):
    """1,700,000,000 is 19.7 days in milliseconds, and 14 November 2023 as Unix seconds."""
    path = tmp_path / "t.csv"
    path.write_text("arrival_ms,prompt_tokens,output_tokens\n1700000000,1,1\n1700000009,1,1\n")
    trace = read_trace(path)
    assert trace.arrival_s.tolist() == [1_700_000, 1_700_000.009]
    assert "1700000000, is read as milliseconds" in trace.doubt
    assert "as Unix time in seconds it is 2023-11-14 22:13:20" in trace.doubt
    path.write_text("arrival_ns,prompt_tokens,output_tokens\n200000000,1,1\n1700000000,1,1\n")  # 0.2 s, not 1976
    assert read_trace(path).doubt == ""


def test_a_unit_of_azures_time_stamps_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,1,1\n")
    assert len(read_trace(path)) == 1
    with pytest.raises(DataError, match="TIMESTAMP: holds time stamps.*remove workload.trace.time_unit: ms"):
        read_trace(path, time_unit="ms")


def test_dates_in_arrival_s_are_read_and_never_called_empty(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "2023-11-16 18:15:46.5,1,1\n2023-11-16T18:15:47Z,1,1\n2023-11-16 18:15:49,1,1\n")
    trace = read_trace(path)
    assert trace.arrival_s.tolist() == [0, 0.5, 2.5] and "they count from its first request" in trace.notes[0]
    with pytest.raises(DataError, match="whose unit needs no stating"):
        read_trace(path, time_unit="ms")
    for rows, said in (
        ("0,1,1\n2023-11-16 18:15:46,1,1\n", r":3: arrival_s: .*got '2023-11-16 18:15:46'.*every row has one"),
        ("2023-11-16 18:15:46,1,1\nnoon,1,1\n", ":3: arrival_s: must be a time stamp .*got 'noon'"),
        ("16/11/2023 18:15,1,1\n", r":2: arrival_s: .*got '16/11/2023 18:15'.*such as 2023-11-16"),
        ("18:15:46,1,1\n", ":2: arrival_s: must be .*got '18:15:46'"),
        ("soon,1,1\n", ":2: arrival_s: must be seconds .*got 'soon'"),
    ):
        path.write_text(HEAD + rows)
        with pytest.raises(DataError, match=said):
            read_trace(path)
        with pytest.raises(DataError, match=said):
            read_trace(path, need_times=False)


def test_the_unit_of_events(tmp_path):
    """Two answers of two chunks 20 ms apart, TTFT 200 and 300 ms: the same figures from every spelling."""
    path = tmp_path / "e.csv"

    def rows(scale, origin=0, names=("arrival", "time")):
        times = [("a", 0, 0.2), ("a", 0, 0.22), ("b", 1, 1.3), ("b", 1, 1.32)]
        body = "".join(f"{r},{origin + round(a * scale)},{origin + round(t * scale)},1\n" for r, a, t in times)
        path.write_text(f"request,{','.join(names)},tokens\n{body}")

    for unit, scale in (("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        rows(scale)
        assert f"--time-unit {unit}" in refusal(read_events, path)
        assert read_events(path, unit)["ttft_s"]["mean"] == pytest.approx(0.25)
        rows(scale, names=(f"arrival_{unit}", f"time_{unit}"))
        assert read_events(path)["itl_s"]["mean"] == pytest.approx(0.02)
    rows(10**3, origin=1700000000000)
    assert "Unix time in milliseconds" in refusal(read_events, path)
    assert read_events(path, "ms")["ttft_s"]["mean"] == pytest.approx(0.25)
    assert main(["metrics", str(path), "--time-unit", "ms"]) == 0
    assert main(["metrics", str(path)]) == 2 and main(["metrics", str(path), "--time-unit", "hours"]) == 2


def test_the_unit_is_a_key_of_the_scenario_and_an_option_of_run(tmp_path, capsys):
    (tmp_path / "t.csv").write_text(HEAD + "0,10,2\n120,10,2\n340,10,2\n")
    world = {
        "workload": {"trace": {"file": "t.csv", "time_unit": "ms"}},
        "cost": {"model": "constant", "step": "0.01 s"},
        "engine": {"max_num_seqs": 4, "num_gpu_blocks_override": 100},
        "run": {"engine": "reference"},
    }
    table = simulate(from_mapping(world, folder=str(tmp_path))).table
    assert table.arrival_ns.tolist() == [0, 120 * 10**6, 340 * 10**6]
    text = "cost: {model: constant, step: 0.01 s}\nengine: {num_gpu_blocks_override: 100}\nrun: {engine: reference}\n"
    (tmp_path / "s.yaml").write_text(text + "workload: {trace: t.csv}\n")
    assert main(["run", str(tmp_path / "s.yaml")]) == 2
    assert "workload.trace.time_unit: ms (--set workload.trace.time_unit=ms)" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "s.yaml"), "--time-unit", "ms"]) == 0
    trace = str(tmp_path / "t.csv")
    assert main(["run", str(tmp_path / "s.yaml"), "--trace", trace, "--set", "workload.trace.time_unit=ms"]) == 0
    assert main(["run", str(tmp_path / "s.yaml"), "--time-unit", "min"]) == 2
