"""Measured events: user case S10 exactly, and every fault of a file named by line, column and value."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from llmqsim.errors import DataError
from llmqsim.metrics import names
from llmqsim.metrics.events import read_events
from llmqsim.report.events_screen import events_screen
from llmqsim.report.files import to_json

HEADER = "request,arrival,time,tokens\n"
S10 = HEADER + "a,0,0.120,1\na,0,0.150,2\na,0,0.210,3\na,0,0.240,1\n"


def written(folder: Path, text: str | bytes, name: str = "events.csv") -> Path:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def fault(folder: Path, text: str | bytes) -> tuple[str, ...]:
    with pytest.raises(DataError) as error:
        read_events(written(folder, text))
    return tuple(sentence.replace(str(folder) + "/", "") for sentence in error.value.faults)


def test_s10_same_word_different_number(tmp_path):
    found = read_events(written(tmp_path, S10))
    assert found["ttft_s"]["mean"] == 0.120 and found["e2e_s"]["mean"] == 0.240
    assert found["tpot_s"]["mean"] == 0.020
    assert round(found["ntpot_s"]["mean"], 4) == 0.0343
    assert found["chunk_gap_s"]["values"] == [0.030, 0.060, 0.030]
    assert found["itl_s"]["values"] == [0.015, 0.020, 0.030] and found["itl_s"]["tokens"] == [2, 3, 1]
    assert found["ttsc_s"]["mean"] == 0.030


def test_every_token_counts_once_in_itl(tmp_path):
    itl = read_events(written(tmp_path, S10))["itl_s"]
    tokens = np.array([0.015] * 2 + [0.020] * 3 + [0.030])
    assert itl["n"] == 6 and itl["mean"] == pytest.approx(tokens.mean()) and itl["p50"] == 0.020
    assert itl["p90"] == pytest.approx(np.percentile(tokens, 90))


def test_one_token_requests_have_no_tpot(tmp_path):
    found = read_events(written(tmp_path, S10 + "b,1,1.5,1\n"))
    assert found["one_token_requests"] == 1 and found["requests"] == 2
    assert found["tpot_s"]["n"] == 1 and found["tpot_s"]["mean"] == 0.020
    assert found["ttft_s"]["values"] == [0.12, 0.5]
    alone = read_events(written(tmp_path, HEADER + "b,1,1.5,1\n"))
    assert alone["tpot_s"] == {**dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max")), "n": 0, "values": []}
    assert alone["itl_s"]["n"] == alone["chunk_gap_s"]["n"] == alone["ttsc_s"]["n"] == 0
    assert "NaN" not in to_json(alone)


def test_requests_may_be_interleaved_and_columns_in_any_order(tmp_path):
    text = "tokens, time ,extra,request,arrival\r\n1,10.1,x,a,10\r\n1,10.3,x,b,10.2\r\n\r\n"
    text += "1,10.4,x,a,10.0\r\n1,10.8,x,b,10.2\r\n"
    found = read_events(written(tmp_path, "\ufeff" + text))
    assert found["ttft_s"]["values"] == [0.1, 0.1] and found["tpot_s"]["values"] == [0.3, 0.5]
    assert found["chunk_gap_s"]["values"] == [0.3, 0.5]


def test_unix_time_and_gzip_lose_nothing(tmp_path):
    text = HEADER + "a,1700000000.000000001,1700000000.120000002,1\n"
    file = written(tmp_path, gzip.compress(text.encode()), "events.csv.gz")
    assert read_events(file)["ttft_s"]["mean"] == 0.120000001


def test_long_samples_are_not_listed(tmp_path):
    text = HEADER + "".join(f"r{i},{i},{i}.5,1\n" for i in range(101))
    assert "values" not in read_events(written(tmp_path, text))["ttft_s"]


BAD_ROWS = {
    "a,0,0.05,0": "events.csv:3: tokens: not a number of tokens (got '0')",
    "a,0,0.25,1.5": "events.csv:3: tokens: not a number of tokens (got '1.5')",
    "a,0,0.25,": "events.csv:3: tokens: not a number of tokens (got '')",
    "a,0,0.25,-1": "events.csv:3: tokens: not a number of tokens (got '-1')",
    "a,0,x,1": "events.csv:3: time: not a time in seconds (got 'x')",
    "a,0,nan,1": "events.csv:3: time: not a time in seconds (got 'nan')",
    "a,0,inf,1": "events.csv:3: time: not a time in seconds (got 'inf')",
    "a,0,1e99,1": "events.csv:3: time: not a time in seconds (got '1e99')",
    "a,0,-1,1": "events.csv:3: time: not a time in seconds (got '-1')",
    "b,-1,2,1": "events.csv:3: arrival: not a time in seconds (got '-1')",
    "b,0,1_0,1": "events.csv:3: time: not a time in seconds (got '1_0')",
    "b,5,4.5,1": "events.csv:3: time: before the request's arrival at 5 (got '4.5')",
    "a,0,0.1,1": "events.csv:3: time: chunks of a request must be in order (got '0.1'); "
    "the chunk before it came at 0.12 (line 2)",
    "a,1,1.5,1": "events.csv:3: arrival: request 'a' arrives once (got '1'); line 2 has 0",
    ",0,1,1": "events.csv:3: request: is empty",
    "a,0,1": "events.csv:3: row: has 3 fields; the header has 4",
}


@pytest.mark.parametrize("row", BAD_ROWS)
def test_a_bad_row_is_named(tmp_path, row):
    (said,) = fault(tmp_path, f"{HEADER}a,0,0.120,1\n{row}\n")
    assert said.startswith(BAD_ROWS[row])


def test_all_faults_at_once_but_not_a_million(tmp_path):
    said = fault(tmp_path, HEADER + "a,0,x,y\n" * 30)
    assert len(said) == 21 and said[0].startswith("events.csv:2: time") and said[1].startswith("events.csv:2: tokens")
    assert said[-1] == "events.csv: and 40 more faults like these"


BAD_FILES = {
    "": "is empty",
    " \n\n": "is empty",
    HEADER: "holds a header and no rows",
    b"\x89PNG\r\n\x1a\n\x00\x00": "is not a text file",
    b"\xff\xfe\xfa": "is not a text file",
    gzip.compress(S10.encode(), mtime=0)[:-12]: "the gzip file is damaged or cut off",
    "request,arrival,tim,tokens\na,0,1,1\n": "events.csv:1: time: no such column "
    "(got: request, arrival, tim, tokens); did you mean 'tim'?; needed: request, arrival, time, tokens",
    "request,arrival,time,time,tokens\na,0,1,1,1\n": "time: this column is there 2 times",
    HEADER + '"a,0,1,1\n': "not a row of CSV",
}


@pytest.mark.parametrize("text", BAD_FILES, ids=lambda t: repr(t)[:30])
def test_a_bad_file_is_named(tmp_path, text):
    said = fault(tmp_path, text)
    assert said[0].startswith("events.csv") and BAD_FILES[text] in said[0]


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_events(tmp_path / "none.csv")
    with pytest.raises(DataError, match="is a folder"):
        read_events(tmp_path)


def test_the_report_names_the_tools_that_call_it_otherwise(tmp_path):
    text = events_screen(read_events(written(tmp_path, S10)))
    for name in names.NAMES:
        for tools, word in name.called:
            assert f"{tools}: {word}" in " ".join(text.split())
    assert max(map(len, text.split("\n"))) <= 100


def test_the_documentation_holds_the_same_table():
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert names.markdown() in page.read_text(encoding="utf-8")
