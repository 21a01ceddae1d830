"""Reading traces: both formats, both readers, and every way in which a file can be wrong."""

from __future__ import annotations

import gzip
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmqsim.errors import DataError
from llmqsim.workload.reading import delimited as module
from llmqsim.workload.trace import read_trace

HEAD = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2222670,879,55
"""


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes, name: str = "t.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def faults(path, **how) -> tuple[str, ...]:
    with pytest.raises(DataError) as error:
        read_trace(path, **how)
    return error.value.faults


def test_own_format_with_extra_columns_in_any_order(write):
    t = read_trace(write("output_tokens,model,arrival_s,prompt_tokens\n5,a,0,10\n6,b,1.25,20\n"))
    assert t.arrival_s.tolist() == [0, 1.25] and t.prompt_tokens.tolist() == [10, 20]
    assert t.output_tokens.tolist() == [5, 6] and t.prompt_tokens.dtype == np.int64 and t.notes == ()


def test_azure_times_count_from_the_first_row_to_the_tenth_of_a_microsecond(write):
    t = read_trace(write(AZURE))
    assert t.arrival_s.tolist() == [0.0, 4.314579, 4.541677] and t.prompt_tokens.tolist() == [374, 396, 879]
    assert "Azure" in t.source
    zoned = AZURE.replace(",374", "+00:00,374").replace(",396", "+00:00,396").replace(",879", "+00:00,879")
    assert np.array_equal(read_trace(write(zoned)).arrival_s, t.arrival_s)


@pytest.mark.parametrize("change", ["gz", "crlf", "cr", "bom", "quotes", "no end of line", "blank lines", "spaces"])
@pytest.mark.parametrize("text", [HEAD + "0,10,5\n0.5,20,6\n", AZURE], ids=["llmqsim", "azure"])
def test_the_same_trace_in_other_clothes(write, text, change):
    plain = read_trace(write(text, "plain.csv"))
    content, name = text.encode(), "t.csv"
    if change == "gz":
        content, name = gzip.compress(content), "t.csv.gz"
    elif change == "crlf":
        content = content.replace(b"\n", b"\r\n")
    elif change == "cr":
        content = content.replace(b"\n", b"\r")
    elif change == "bom":
        content = b"\xef\xbb\xbf" + content
    elif change == "quotes":
        content = b"\n".join(b",".join(b'"%s"' % f for f in row.split(b",")) for row in content.split()) if (
            text is not AZURE
        ) else content.replace(b"2023-11-16 18:15:46.6805900", b'"2023-11-16 18:15:46.6805900"')  # fmt: skip
    elif change == "no end of line":
        content = content.rstrip(b"\n")
    elif change == "blank lines":
        content = content.replace(b"\n", b"\n\n")
    else:
        content = content.replace(b",", b", ")
    t = read_trace(write(content, name))
    for column in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert np.array_equal(getattr(t, column), getattr(plain, column))


def test_both_readers_agree(write, monkeypatch):
    rng = np.random.default_rng(0)
    rows = zip(np.cumsum(rng.exponential(size=3000)), rng.integers(1, 9999, (3000, 2)), strict=True)
    path = write(HEAD + "".join(f"{a!r},{p},{o}\n" for a, (p, o) in ((float(t), x) for t, x in rows)))
    fast = read_trace(path)
    monkeypatch.setattr(module, "_fast", lambda *_: None)
    careful = read_trace(path)
    assert np.array_equal(fast.prompt_tokens, careful.prompt_tokens)
    assert np.array_equal(np.rint(fast.arrival_s * 1e9), np.rint(careful.arrival_s * 1e9))


def test_lengths_without_times(write):
    path = write("arrival_s,prompt_tokens,output_tokens,turn\n,10,5,0\n,20,6,1\n")
    assert "lengths only" in faults(path)[0] and "workload fit" in faults(path)[0]
    t = read_trace(path, need_times=False)
    assert not t.has_times and t.prompt_tokens.tolist() == [10, 20]
    (fault,) = faults(write(HEAD + "0,10,5\n,20,6\n"))
    assert ":3: arrival_s: must be seconds" in fault and "(got '')" in fault


def test_columns_that_are_not_used_and_rounded_stamps_are_told(write):
    t = read_trace(write("arrival_s,prompt_tokens,output_tokens,session_id\n" + "3,10,5,7\n" * 5))
    assert "session_id" in t.notes[0] and "stamps are rounded" in t.notes[1]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("-1,10,5", "arrival_s: must be seconds since the start, at least 0 (got '-1')"),
        ("nan,10,5", "arrival_s: must be seconds since the start, at least 0 (got 'nan')"),
        ("inf,10,5", "arrival_s: must be seconds since the start, at least 0 (got 'inf')"),
        ("1e300,10,5", "(got '1e300') (milliseconds?)"),
        ("abc,10,5", "arrival_s: must be seconds since the start, at least 0 (got 'abc')"),
        ("0.5,10,5", "must not be before the row above (got '0.5' after '1.0' in line 3)"),
        ("2,0,5", "prompt_tokens: must be a whole number of at least 1 (got '0')"),
        ("2,-3,5", "prompt_tokens: must be a whole number of at least 1 (got '-3')"),
        ("2,10,1.5", "output_tokens: must be a whole number of at least 1 (got '1.5')"),
        ("2,10,nan", "output_tokens: must be a whole number of at least 1 (got 'nan')"),
        ("2,10,", "output_tokens: must be a whole number of at least 1 (got '')"),
        ("2,1_000,5", "prompt_tokens: must be a whole number of at least 1 (got '1_000')"),
        ("2,1e30,5", "prompt_tokens: must be at most 2,147,483,647 (got '1e30')"),
        ("2,True,5", "prompt_tokens: must be a whole number of at least 1 (got 'True')"),
        ("2,10", "has 2 fields; the header has 3"),
        ("2,10,5,7", "has 4 fields; the header has 3"),
        ("arrival_s,prompt_tokens,output_tokens", "the header is repeated here"),
    ],
)
@pytest.mark.parametrize("more", [0, 3000])
def test_one_bad_row_is_named(write, row, said, more):
    path = write(HEAD + "0,1,1\n1.0,1,1\n" + row + "\n" + "".join(f"{2 + i},1,1\n" for i in range(more)))
    found = faults(path)
    assert all(f.startswith(f"{path}:4: ") for f in found)
    assert said in "\n".join(found)


def test_lines_are_right_after_blank_lines_and_quoted_line_ends(write):
    path = write('arrival_s,prompt_tokens,output_tokens,text\n0,1,1,"two\nlines"\n\n1,1,1,x\n2,0,1,y\n')
    (fault,) = faults(path)
    assert fault.startswith(f"{path}:6: prompt_tokens")


def test_twenty_faults_and_the_number_of_the_rest(write):
    found = faults(write(HEAD + "0,0,1\n" * 50 + "0,0,0\n"))
    assert len(found) == 21 and found[0].endswith("(got '0')") and ":2: " in found[0]
    assert found[-1].endswith("and 32 more faults")


def test_azure_rows_are_checked_too(write):
    swapped = AZURE.splitlines()
    swapped[2], swapped[3] = swapped[3], swapped[2]
    assert "must not be before the row above" in faults(write("\n".join(swapped)))[0]
    earlier = AZURE + "2023-11-16 18:15:00.0000000,5,5\n"
    assert ":5: TIMESTAMP: must not be before the row above" in faults(write(earlier))[0]
    unreadable = AZURE.replace("2023-11-16 18:15:50.9951690", "12.5")
    assert ":3: TIMESTAMP: must be a time stamp" in faults(write(unreadable))[0]
    assert "GeneratedTokens" in faults(write(AZURE.replace(",55", ",0")))[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "the file is empty"),
        (b"\x89PNG\x00\x00", "binary"),
        (HEAD.encode() + b"0,1,\xe9\n", ":2: not UTF-8"),
        (HEAD.encode(), "has a header and no rows"),
        (HEAD.encode() + b"\n\n", "has a header and no rows"),
        (HEAD.replace("prompt_tokens", "promt_tokens").encode() + b"0,1,1\n", "did you mean 'promt_tokens'"),
        (HEAD.replace(",", " ").encode() + b"0 1 1\n", "separate columns by commas"),
        (b"0,1,1\n1,1,1\n", "The header must name arrival_s, prompt_tokens, output_tokens"),
        (b"arrival_s,prompt_tokens,prompt_tokens,output_tokens\n0,1,1,1\n", "stands twice in the header"),
        (AZURE.replace("ContextTokens", "Context").encode(), "no column 'ContextTokens'"),
        (gzip.compress(HEAD.encode() + b"0,1,1\n" * 999, mtime=0)[:-20], "truncated"),
        (gzip.compress(b"x" * 5000, mtime=0)[:12] + b"\xff" * 30, "gzip data"),
        (HEAD.encode() + b'0,1,"1\n0,1,1\n', "has|not CSV|must be"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(write, content, said):
    path = write(content)
    found = "\n".join(faults(path))
    assert found.startswith(str(path))
    assert any(word in found for word in said.split("|"))


def test_missing_folder_and_misnamed_files(write, tmp_path):
    assert "no such file" in faults(tmp_path / "none.csv")[0]
    assert "is a folder" in faults(tmp_path)[0]
    assert "not gzip data" in faults(write(HEAD + "0,1,1\n", "t.csv.gz"))[0]
    with pytest.raises(DataError, match="no column 'TIMESTAMP'"):
        read_trace(write(HEAD + "0,1,1\n"), format="azure")


def test_one_bad_row_among_a_million_is_found_quickly(write):
    rows = [f"{i / 100:.2f},{100 + i % 900},{1 + i % 300}" for i in range(1_000_000)]
    path = write(HEAD + "\n".join(rows) + "\n")
    start = time.process_time()
    assert len(read_trace(path)) == 1_000_000
    # About 0.3 s on one core; the bound only catches a reader that went row by row.
    assert time.process_time() - start < 5
    rows[777_775] = "7777.75,many,5"
    (fault,) = faults(write(HEAD + "\n".join(rows) + "\n"))
    assert ":777777: prompt_tokens: must be a whole number of at least 1 (got 'many')" in fault


FIELDS = st.sampled_from(["0", "1", "2.5", "-1", "", "nan", "inf", "x", '"', "1e999", "9" * 25, "2023-11-16 18:15:46"])


@given(st.lists(st.lists(FIELDS, min_size=1, max_size=4), max_size=6), st.sampled_from([HEAD, AZURE[:40], "a,b\n", ""]))
def test_no_text_escapes_as_anything_but_a_data_error(rows, head):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_text(head + "\n".join(map(",".join, rows)))
        try:
            t = read_trace(path)
        except DataError as error:
            assert all(fault.startswith(str(path)) for fault in error.faults)
        else:
            assert len(t) and np.all(t.prompt_tokens >= 1) and np.all(t.output_tokens >= 1)
            assert np.all(np.diff(t.arrival_s) >= 0) and t.arrival_s[0] >= 0
