"""Traces of many programs: read right (against a few lines of json and csv), recognised by content, faults named.

The shapes are the programs' as far as they are known (docs/traces.md says which from memory). What is right is worked
out here from the same text with the standard library, or stands in the text.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import math
from datetime import datetime

import numpy as np
import pytest

from llmqsim.cli import main
from llmqsim.errors import DataError, UserError
from llmqsim.scenario.load import from_mapping
from llmqsim.workload.build import build
from llmqsim.workload.reading import delimited, stream
from llmqsim.workload.reading.catalogue import FORMATS, MEMORY, formats_text
from llmqsim.workload.reading.options import How, parse_columns
from llmqsim.workload.reading.sheet import longest_ordered
from llmqsim.workload.trace import read_trace

HEAD = "arrival_s,prompt_tokens,output_tokens\n"
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n45,GPT-4,10,230,240,API log\n"
)
MOONCAKE = "".join(
    json.dumps({"timestamp": t, "input_length": p, "output_length": o, "hash_ids": h}) + "\n"
    for t, p, o, h in ((0, 1000, 52, [0, 1]), (3000, 600, 26, [0, 2]), (3000, 90, 7, [5]))
)
BAILIAN = "".join(
    json.dumps({"chat_id": c, "parent_chat_id": q, "timestamp": t, "input_length": p, "output_length": o, "type": k,
                "turn": n, "hash_ids": h}) + "\n"
    for c, q, t, p, o, k, n, h in ((7, -1, 0.5, 40, 5, "text", 1, [1, 2]), (8, -1, 0.75, 20, 6, "file", 1, [3]),
                                   (9, 7, 61.1, 60, 9, "text", 2, [1, 2, 4]), (10, 9, 90.0, 90, 3, "text", 3, [1, 2, 4]))
)  # fmt: skip
AZURE24 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
    "2024-05-10 02:00:01.009930+02:00,2399,6\n2024-05-10 00:00:01.509930+00:00,76,15\n"
)
SPANS = {
    "resourceSpans": [{"scopeSpans": [{"spans": [
        {"name": "chat m", "startTimeUnixNano": str(1_700_000_001_500_000_000), "attributes": [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "120"}},
            {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "33"}},
            {"key": "gen_ai.request.max_tokens", "value": {"intValue": "64"}},
            {"key": "gen_ai.conversation.id", "value": {"stringValue": "b"}}]},
        {"name": "invoke_agent a", "startTimeUnixNano": "1700000000000000000", "attributes": [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}},
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "999"}},
            {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "999"}}]},
        {"name": "GET /", "startTimeUnixNano": "1700000000000000000", "attributes": []},
        {"name": "chat m", "startTimeUnixNano": str(1_700_000_000_250_000_000), "attributes": [
            {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "7"}},
            {"key": "gen_ai.usage.completion_tokens", "value": {"intValue": "3"}},
            {"key": "gen_ai.conversation.id", "value": {"stringValue": "a"}}]},
    ]}]}]
}  # fmt: skip
LITELLM = (
    "request_id,call_type,api_key,spend,startTime,endTime,prompt_tokens,completion_tokens,model\n"
    'a,acompletion,k,0.1,2025-01-01T00:00:02.5Z,2025-01-01T00:00:09Z,30,4,"m, large"\n'
    "b,acompletion,k,0.1,2025-01-01T00:00:00Z,2025-01-01T00:00:04Z,20,3,m\n"
    "c,acompletion,k,0.0,2025-01-01T00:00:01Z,2025-01-01T00:00:01Z,0,0,m\n"
)
SHAREGPT = [
    {"id": "x", "conversations": [{"from": "human", "value": "a" * 40}, {"from": "gpt", "value": "b" * 12},
                                  {"from": "human", "value": "c" * 8}, {"from": "gpt", "value": "d" * 9}]},
    {"id": "y", "conversations": [{"from": "gpt", "value": "nobody asked"}]},
]  # fmt: skip


def answer(at: int, prompt: int, output: int, cached: int) -> dict:
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": {"cached_tokens": cached}}
    return {"role": "assistant", "content": "x", "extra": {"response": {"created": at, "usage": usage}}}


@pytest.fixture
def write(tmp_path):
    def write(content, name: str = "t.csv"):
        path = tmp_path / name
        if isinstance(content, (dict, list)):
            content = json.dumps(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def refused(path, how: How | None = None, **more) -> str:
    with pytest.raises(UserError) as error:
        read_trace(path, how=how, **more)
    return "\n".join(error.value.faults)


def requests(workload: dict):
    return build(workload, seed=0, replication=0, base_folder=".", max_model_len=None).table


def columns(trace) -> tuple[list, list, list]:
    return trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist()


def test_burstgpt_leaves_out_what_failed_and_says_so(write):
    trace = read_trace(write(BURSTGPT))
    rows = [row for row in csv.DictReader(io.StringIO(BURSTGPT)) if row["Response tokens"] != "0"]
    assert columns(trace) == ([float(r["Timestamp"]) for r in rows], [int(r["Request tokens"]) for r in rows],
                              [int(r["Response tokens"]) for r in rows])  # fmt: skip
    assert trace.labels["class"].tolist() == [r["Log Type"] for r in rows]
    assert "1 of 3 rows have 0 tokens" in trace.notes[0] and trace.doubt == ""  # its seconds are stated by the format


def test_mooncake_is_in_milliseconds_and_its_ids_are_prefixes(write):
    records = [json.loads(line) for line in MOONCAKE.splitlines()]
    for content, name in ((MOONCAKE, "t.jsonl"), (json.dumps(records), "t.json"), (json.dumps(records, indent=1), "p")):
        trace = read_trace(write(content, name))
        assert columns(trace) == ([r["timestamp"] / 1e3 for r in records], [r["input_length"] for r in records],
                                  [r["output_length"] for r in records])  # fmt: skip
        assert trace.prefix_ids == [r["hash_ids"] for r in records] and trace.hash_tokens == 512


def test_bailian_chains_chats_and_its_blocks_hold_16_tokens(write):
    path = write(BAILIAN, "t.jsonl")
    trace = read_trace(path, extras=True)
    assert trace.arrival_s.tolist() == [0.5, 0.75, 61.1, 90.0] and trace.hash_tokens == 16
    assert trace.session is not None and trace.session.tolist() == [0, 1, 0, 0]
    assert trace.labels["class"].tolist() == ["text", "file", "text", "text"]
    prefixes = requests({"trace": {"file": str(path)}}).prefixes
    assert np.diff(prefixes.offsets).tolist() == [2, 1, 3, 3]  # ids of 16 tokens are blocks of 16
    assert prefixes.hashes[0] == prefixes.hashes[3] and prefixes.hashes[2] not in prefixes.hashes[3:]


def test_azure_of_2024_has_zones(write):
    trace = read_trace(write(AZURE24))
    stamps = [datetime.fromisoformat(line.split(",")[0]).timestamp() for line in AZURE24.splitlines()[1:]]
    assert trace.arrival_s == pytest.approx([s - stamps[0] for s in stamps], abs=1e-6)
    assert trace.start_s == pytest.approx(stamps[0], abs=1e-6)


def test_spans_are_sorted_and_agents_are_not_counted_twice(write):
    lines = "\n".join(json.dumps(SPANS) for _ in range(2))
    for content, times in ((SPANS, 1), (lines, 2)):
        trace = read_trace(write(content, "t.json"), extras=True)
        assert trace.arrival_s.tolist() == sorted([0.0, 1.25] * times)
        assert trace.prompt_tokens.tolist() == sorted([7, 120] * times)
        assert trace.max_tokens.tolist() == [0] * times + [64] * times
        assert trace.session.tolist() == [0] * times + [1] * times or times == 1
        said = " ".join(trace.notes)
        assert f"{times} spans of agents" in said and f"{times} spans without token counts" in said and "sorted" in said
    flat = {"name": "chat", "context": {"trace_id": "1", "span_id": "2"}, "start_time": "2025-01-01T00:00:00Z",
            "attributes": {"gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 6}}  # fmt: skip
    assert columns(read_trace(write(flat, "s.json"))) == ([0.0], [5], [6])


def test_litellm_rows_come_in_order_of_their_start(write):
    trace = read_trace(write(LITELLM))
    assert columns(trace) == ([0.0, 2.5], [20, 30], [3, 4])
    rows = list(csv.DictReader(io.StringIO(LITELLM)))
    assert columns(read_trace(write("\n".join(json.dumps(row) for row in rows), "l.jsonl"))) == columns(trace)


def test_sharegpt_turns_are_requests_with_their_history(write):
    path = write(SHAREGPT, "s.json")
    trace = read_trace(path, need_times=False, extras=True)
    tokens = [[math.ceil(len(one["value"]) / 4) for one in chat["conversations"]] for chat in SHAREGPT]
    assert trace.prompt_tokens.tolist() == [tokens[0][0], sum(tokens[0][:3])]
    assert trace.output_tokens.tolist() == [tokens[0][1], tokens[0][3]]
    assert trace.numbers["turn"].tolist() == [0, 1] and trace.numbers["new_prompt_tokens"].tolist() == [10, 2]
    assert "estimated" in " ".join(trace.notes) and "1 answers without a prompt" in " ".join(trace.notes)
    more = read_trace(path, need_times=False, how=How(chars_per_token=2.0))
    assert more.prompt_tokens.tolist() == [20, 30]
    assert "lengths only" in refused(path)
    chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "abcd"}]},
                         {"role": "assistant", "content": "abcdefgh"}]}  # fmt: skip
    assert columns(read_trace(write(chat, "c.jsonl"), need_times=False))[1:] == ([1], [2])
    assert "tiktoken" in refused(path, How(tokenizer="no_such_encoding"), need_times=False)


def test_agent_runs_are_sessions_of_a_file_or_a_folder(tmp_path, write):
    (tmp_path / "runs").mkdir()
    for name, at in (("a", 1_700_000_010), ("b", 1_700_000_000)):
        run = {"info": {}, "messages": [{"role": "user", "content": "do"}, answer(at, 100, 5, 0), answer(at + 3, 120, 6, 96)]}
        write(run, f"runs/{name}.traj.json")
    trace = read_trace(tmp_path / "runs", extras=True)
    assert columns(trace) == ([0, 3, 10, 13], [100, 120, 100, 120], [5, 6, 5, 6])
    assert trace.session.tolist() == [0, 0, 1, 1] and trace.numbers["cached_tokens"].tolist() == [0, 96, 0, 96]
    assert len(read_trace(tmp_path / "runs" / "a.traj.json")) == 2


def test_vllm_bench_has_times_where_it_says_so(write):
    result = {"input_lens": [5, 6, 7], "output_lens": [8, 0, 9], "errors": ["", "failed", ""], "start_times": [99.5, 99.0, 98.5]}
    assert columns(read_trace(write(result, "v.json"))) == ([0.0, 1.0], [7, 5], [9, 8])
    del result["start_times"]
    assert "lengths only" in refused(write(result, "v.json"))
    assert len(read_trace(write(result, "v.json"), need_times=False)) == 2


def scrape(counts: list[int], total: int, stamp: str = "") -> str:
    lines = []
    for name in ("prompt", "generation"):
        metric = f"vllm:request_{name}_tokens"
        lines.append(f"# TYPE {metric} histogram")
        for engine in ("0", "1"):  # of two engines, each half
            running = np.cumsum(counts)
            for le, value in zip(("10.0", "100.0", "+Inf"), running, strict=True):
                lines.append(f'{metric}_bucket{{engine="{engine}",le="{le}"}} {value / 2}{stamp}')
            lines.append(f'{metric}_sum{{engine="{engine}"}} {total / 2}{stamp}')
    return "\n".join(lines) + "\n"


def test_two_scrapes_give_a_rate_and_lengths(write):
    first, second = write(scrape([10, 10, 0], 700), "a.prom"), write(scrape([110, 310, 0], 20_700), "b.prom")
    assert "one scrape" in refused(first) and "--seconds" in refused(first, How(second=str(second)))
    trace = read_trace(first, how=How(second=str(second), seconds=80.0))
    # 100 more in 1..10 and 300 more in 11..100, whose tokens add up to 20,000
    assert len(trace) == 400 and trace.arrival_s.min() >= 0 and trace.arrival_s.max() <= 80
    for column in (trace.prompt_tokens, trace.output_tokens):
        assert (column <= 10).sum() == 100 and column.max() <= 100
        assert column.sum() == pytest.approx(20_000, rel=0.01)
    both = write(scrape([10, 10, 0], 700, " 1000") + scrape([110, 310, 0], 20_700, " 81000"), "both.prom")
    assert np.array_equal(read_trace(both).prompt_tokens, trace.prompt_tokens)
    assert "restarted" in refused(second, How(second=str(first), seconds=80.0))
    assert "assumed" in " ".join(trace.notes)
    for old, new in (('le="10.0"', 'le="ten"'), ("} 5.0", "} nan"), ("} 5.0", "} many"), ("} 5.0", "")):
        broken = write(scrape([10, 10, 0], 700).replace(old, new), "c.prom")
        assert "c.prom:" in refused(broken, How(second=str(second), seconds=80.0))


def test_servegen_counts_are_the_tables(write):
    rates = "client_id,window_start_s,rate_rps,iat_cv,iat_dist,shape,scale\n"
    rates += "0,0,0.5,2.0,Gamma,0.25,8\n0,600,0.05,1.0,Weibull,1.0,20\n3,600,0.1,1,Gamma,1,10\n"
    path = write(rates, "x_rates.csv")
    assert "x_lengths.csv" in refused(path)
    write("client_id,window_start_s,field,value,prob\n0,0,prompt_tokens,10,0.25\n0,0,prompt_tokens,20,0.75\n"
          "0,0,output_tokens,5,1\n3,0,text_tokens,7,1\n3,0,image_count,2,1\n3,0,image_tokens,50,1\n3,0,output_tokens,9,1\n",
          "x_lengths.csv")  # fmt: skip
    trace = read_trace(path)
    client = trace.labels["tenant"]
    assert [int(((client == who) & (trace.arrival_s // 600 == w)).sum()) for who, w in
            (("client-0", 0), ("client-0", 1), ("client-3", 1))] == [300, 30, 60]  # fmt: skip
    assert set(trace.prompt_tokens[client == "client-3"]) == {107}
    share = np.mean(trace.prompt_tokens[client == "client-0"] == 20)
    assert abs(share - 0.75) < 4 * math.sqrt(0.25 * 0.75 / 330)
    assert np.array_equal(read_trace(path).arrival_s, trace.arrival_s)


def test_any_table_by_its_column_names(write, tmp_path):
    how = How(columns=parse_columns("arrival_ms=at,prompt_tokens=usage.in,output_tokens=usage.out,tenant=who"))
    text = "at,usage.in,usage.out,who\n0,5,6,a\n1500,7,8,b\n"
    record = [{"at": 0, "usage": {"in": 5, "out": 6}, "who": "a"}, {"at": 1500, "usage": {"in": 7, "out": 8}, "who": "b"}]
    for content, name in ((text, "t.csv"), (text.replace(",", "\t"), "t.tsv"), (text.replace(",", ";"), "t.csv"),
                          ("\n".join(map(json.dumps, record)), "t.jsonl")):  # fmt: skip
        trace = read_trace(write(content, name), how=how)
        assert columns(trace) == ([0, 1.5], [5, 7], [6, 8]) and trace.labels["tenant"].tolist() == ["a", "b"]
    lengths = How(columns=parse_columns("prompt_tokens=usage.in,output_tokens=usage.out"))
    assert not read_trace(write(text), need_times=False, how=lengths).has_times
    assert "did you mean 'usage.in'" in refused(write(text), How(columns={"prompt_tokens": "usage_in", "output_tokens": "usage.out", "arrival_ms": "at"}))
    with pytest.raises(UserError, match="unknown column .got 'promt'"):
        How(columns={"promt": "x"})
    with pytest.raises(UserError, match="must be OURS=THEIRS"):
        parse_columns("arrival_s")
    said = "arrival_ms=at,prompt_tokens=usage.in,output_tokens=usage.out"
    scenario = from_mapping({"workload": {"trace": {"file": str(write(text)), "columns": said}},
                             "cost": {"model": "constant", "step": "1 s"}})  # fmt: skip
    assert requests(scenario.spec.workload.model_dump()).arrival_ns.tolist() == [0, 1_500_000_000]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_in_small_pieces_are_the_same(write, monkeypatch, pack):
    rng = np.random.default_rng(0)
    rows = [f'{i * 0.5},{p},{o},"a ""b"" {i}\nc"' for i, (p, o) in enumerate(rng.integers(1, 900, (400, 2)).tolist())]
    text = "arrival_s,prompt_tokens,output_tokens,text\n" + "\r\n".join(rows) + "\r\n"
    right = [(float(r["arrival_s"]), int(r["prompt_tokens"])) for r in csv.DictReader(io.StringIO(text))]
    for size in (1 << 20, 1000, 337):
        monkeypatch.setattr(stream.blocks, "__defaults__", (False, size))
        trace = read_trace(write(pack(text.encode()), "t.bin"))
        assert list(zip(trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), strict=True)) == right
    assert "truncated" in refused(write(pack(text.encode())[:-30]))


def test_zstd_is_read_or_says_what_it_needs(write):
    raw = (HEAD + "0,5,6\n").encode()
    try:
        import zstandard
    except ImportError:
        assert "llmqsim[zstd]" in refused(write(b"\x28\xb5\x2f\xfd\x00\x00"))
        return
    assert len(read_trace(write(zstandard.compress(raw)))) == 1


def test_parquet_with_stamps_of_any_kind(write, tmp_path):
    pa = pytest.importorskip("pyarrow", reason="the parquet extra is not installed")
    from pyarrow import parquet

    stamps = {"us": pa.array([1_700_000_000_000_000, 1_700_000_000_250_000], pa.timestamp("us", "Europe/Berlin")),
              "text": pa.array(["2023-11-14 22:13:20.0", "2023-11-14 22:13:20.25"]), "number": pa.array([0.0, 0.25])}  # fmt: skip
    for column in stamps.values():
        table = {"arrival_s": column, "prompt_tokens": pa.array([5, 6], pa.int32()), "output_tokens": [7, 8],
                 "session_id": ["x", "y"]}  # fmt: skip
        parquet.write_table(pa.table(table), tmp_path / "t.parquet")
        trace = read_trace(tmp_path / "t.parquet", extras=True)
        assert columns(trace) == ([0, 0.25], [5, 6], [7, 8]) and trace.session.tolist() == [0, 1]
    table["prompt_tokens"] = [5, None]
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    assert ":2: prompt_tokens: must be a whole number" in refused(tmp_path / "t.parquet")


BAD = {
    "decimal commas": ("a;b;c\n0,5;1;1\n", How(columns={"arrival_s": "a", "prompt_tokens": "b", "output_tokens": "c"}),
                       (":2: a: ", "'0,5'", "decimal comma")),
    "a clock that jumps back": (HEAD + "0,1,1\n9,1,1\n3,1,1\n10,1,1\n", None, (":4: arrival_s", "'3", "after '9", "line 3")),
    "a stamp in milliseconds": (HEAD + "".join(f"{t},1,1\n" for t in (0, 1.0, 1500, 2.0, 3.0)), None,
                                (":4: arrival_s", "1,000", "another unit?")),
    "a stamp in ns": (HEAD + "0,1,1\n1,1,1\n1500000000,1,1\n2,1,1\n3,1,1\n", None, (":4: arrival_s", "1,000,000,000")),
    "two headers": ("arrival_s,prompt_tokens,output_tokens,prompt_tokens\n0,1,1,1\n", None, ("stands twice",)),
    "nan": (HEAD + "0,1,1\nnan,1,1\n", None, (":3: arrival_s", "'nan'")),
    "mixed encodings": ((HEAD + "0,1,1\n").encode() + b"1,1,\xff\n", None, (":3: not UTF-8", "0xff")),
    "empty": ("", None, ("empty",)),
    "a wrong name": (BURSTGPT, How(format="mooncake"), ("no column 'timestamp'", "looks like format burstgpt")),
    "an unknown name": (HEAD, How(format="mooncak"), ("unknown (got 'mooncak')", "mooncake")),
    "a broken line": (MOONCAKE + '{"timestamp": 1,\n', None, (":4: not JSON",)),
    "no number": (MOONCAKE.replace("600", '"many"'), None, (":2: input_length", "'many'")),
    "true": (MOONCAKE.replace("600", "true"), None, (":2: input_length", "'True'")),
    "a huge number": (MOONCAKE.replace("600", "9" * 400), None, (":2: input_length", "at least 1")),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_line_column_and_value(write, name):
    content, how, words = BAD[name]
    path = write(content)
    said = refused(path, how)
    assert all(word in said for word in words), said


def test_one_row_is_a_trace(write):
    assert len(read_trace(write(HEAD + "0,1,1\n"))) == 1


def test_skip_bad_counts_and_lists_what_it_left_out(write):
    rows = "0,1,1\nx,1,1\n1,0,1\n2,1,1\n9000,1,1\n3,1\n3,1,1\n2.5,1,1\n4,1,nan\n5,1,1\n"
    trace = read_trace(write(HEAD + rows), how=How(skip_bad=True))
    assert trace.arrival_s.tolist() == [0, 2, 3, 5] and trace.rows_left_out == 6
    said = "\n".join(trace.left_out)
    assert all(f":{line}: " in said for line in (3, 4, 6, 7, 9, 10)) and "6 rows of the trace were left out" in trace.notes[-1]
    trace = read_trace(write(MOONCAKE + '{"timestamp": 1,\n', "t.jsonl"), how=How(skip_bad=True))
    assert len(trace) == 3 and ":4: not JSON" in trace.left_out[0]
    raw = (HEAD + "0,1,1\n").encode() + b"1,1,\xff\n2,1,1\n"
    assert read_trace(write(raw), how=How(skip_bad=True)).arrival_s.tolist() == [0, 2]
    assert "no request is left" in refused(write(HEAD + "x,1,1\n"), How(skip_bad=True))


def test_the_fewest_rows_are_blamed_for_a_clock_that_jumps():
    rng = np.random.default_rng(1)
    for _ in range(50):
        stamps = rng.integers(0, 8, rng.integers(1, 9)).astype(float)
        kept = longest_ordered(stamps, np.ones(len(stamps), dtype=bool))
        assert np.all(np.diff(stamps[kept]) >= 0)
        best = max(
            (bin(mask).count("1") for mask in range(1 << len(stamps))
             if np.all(np.diff(stamps[[i for i in range(len(stamps)) if mask >> i & 1]]) >= 0)),
        )  # fmt: skip
        assert kept.sum() == best


def test_the_careful_reader_and_the_fast_one_bring_the_same_columns(write, monkeypatch):
    rng = np.random.default_rng(2)
    rows = "".join(f"{i * 0.25},{p},{o},c{p % 3},{i % 7}\n" for i, (p, o) in enumerate(rng.integers(1, 900, (500, 2)).tolist()))
    path = write("arrival_s,prompt_tokens,output_tokens,class,session_id\n" + rows)
    fast = read_trace(path, extras=True)
    monkeypatch.setattr(delimited, "_fast", lambda plan: None)
    slow = read_trace(path, extras=True)
    assert columns(fast) == columns(slow) and fast.notes == slow.notes
    assert fast.labels["class"].tolist() == slow.labels["class"].tolist()
    assert fast.session.tolist() == slow.session.tolist()


def test_convert_writes_what_it_read_in_every_form(tmp_path, monkeypatch, capsys, write):
    monkeypatch.chdir(tmp_path)
    source = (
        "arrival_s,prompt_tokens,output_tokens,class,max_tokens,session_id,turn,prefix_hash_blocks\n"
        "0.0,5,6,a,8,0,0,1 2\n0.123456789,7,8,b,,1,0,\n2.5,1,1,a,1,0,1,1\n"
    )
    write(source, "a.csv")
    names = ["b.tsv", "c.jsonl.gz", "d.csv.gz", "e.csv"]
    if pytest.importorskip("pandas") and __import__("importlib").util.find_spec("pyarrow"):
        names.insert(2, "p.parquet")
    last = "a.csv"
    for name in names:
        assert main(["workload", "convert", last, name]) == 0
        last = name
    assert (tmp_path / "e.csv").read_text() == source
    assert main(["workload", "convert", "a.csv", "x.txt"]) == 2 and "name the trace .csv" in capsys.readouterr().err
    assert main(["workload", "convert", "a.csv", "a.csv"]) == 2
    write("ts,in,out\n0,1,1\n100,1,1\n", "ms.csv")
    named = ["--columns", "arrival_s=ts,prompt_tokens=in,output_tokens=out"]
    assert main(["workload", "convert", "ms.csv", "o.csv", *named]) == 2
    assert "--time-unit: ms" in capsys.readouterr().err and not (tmp_path / "o.csv").exists()
    assert main(["workload", "convert", "ms.csv", "o.csv", *named, "--time-unit", "ms"]) == 0
    assert (tmp_path / "o.csv").read_text().splitlines()[-1] == "0.1,1,1"


def test_what_is_known_from_memory_is_marked():
    text = formats_text()
    assert all(f"{name}: " in text for name in FORMATS)
    assert text.count("from memory") == sum(one.known == MEMORY for one in FORMATS.values()) > 5


def test_everything_that_takes_a_trace_takes_them(tmp_path, monkeypatch, capsys, write):
    monkeypatch.chdir(tmp_path)
    write(MOONCAKE, "m.jsonl")
    write("workload: {trace: m.jsonl}\ncost: {model: constant, step: 10 ms}\nengine: {num_gpu_blocks_override: 1000}\n"
          "run: {engine: reference}\n", "s.yaml")  # fmt: skip
    assert main(["run", "s.yaml"]) == 0
    assert "m.jsonl: 3 requests" in capsys.readouterr().out
    write(BURSTGPT, "b.csv")
    assert main(["run", "s.yaml", "--trace", "b.csv"]) == 0
    with pytest.raises(DataError):
        read_trace(write("a,b\n1,2\n"))
