"""Files of other programs, told by their content, so that a refusal can name them and say what would be right.

Those that hold requests are read where a trace is expected (workload/reading/catalogue.py).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmqsim.errors import DataError, did_you_mean

HEAD = 1 << 16
"""bytes of a file that are looked at"""
TO_TRACE = "write one row a request with arrival_s, prompt_tokens, output_tokens"
NO_REQUESTS = f"it has no single requests in it; log them, and {TO_TRACE}"
READ = "it is read as a trace (`llmqsim workload inspect FILE`, or `workload convert FILE OUT.csv`)"
SCRAPES = "of vLLM, two scrapes are read by `llmqsim workload convert` (docs/traces.md)"
VALIDATE = "compare it with a simulation by `llmqsim validate FILE --server SERVER.yaml --out DIR` (docs/validate.md)"


@dataclass(frozen=True)
class Format:
    """What only such files have (all of `keys`), what they are called, and how a trace is made of one."""

    name: str
    keys: frozenset[str]
    advice: str


def _format(name: str, keys: str, advice: str) -> Format:
    return Format(name, frozenset(part.strip() for part in keys.split("|")), advice)


JSON_FORMATS: tuple[Format, ...] = (
    _format("a Qwen-Bailian trace (JSON lines)", "chat_id | timestamp | input_length | output_length", READ),
    _format("a Mooncake trace (JSON lines)", "timestamp | input_length | output_length", READ),
    _format("OpenTelemetry spans (OTLP JSON)", "resourceSpans", READ),
    _format("Jaeger spans (JSON)", "traceID | spanID", f"take one span a request, and {TO_TRACE}"),
    _format("OpenTelemetry spans (JSON)", "trace_id | span_id", READ),
    _format("spans of a tracer (JSON)", "traceId | spanId", f"take one span a request, and {TO_TRACE}"),
    _format("Zipkin spans (JSON)", "traceId | localEndpoint", f"take one span a request, and {TO_TRACE}"),
    _format("ShareGPT conversations (JSON)", "conversations", READ),
    _format("recorded chats (JSON)", "messages", READ),
    _format("recorded chats (JSON)", "conversation", READ),
    _format("an answer of Prometheus (JSON)", "resultType", NO_REQUESTS),
    _format("a profile in Chrome's trace format (JSON)", "traceEvents", NO_REQUESTS),
    _format("samples of k6 (JSON lines)", "metric | type | data", NO_REQUESTS),
    _format("hits of Elasticsearch (JSON)", "_source", f"export the fields of each hit, and {TO_TRACE}"),
    _format("a result of SGLang bench_serving (JSON)", "mean_e2e_latency_ms | request_throughput", VALIDATE),
    _format("a result of vLLM bench serve (JSON)", "request_throughput | mean_ttft_ms", VALIDATE),
    _format("records of AIPerf (JSON lines)", "request_start_ns | metrics", VALIDATE),
    _format("a report of GuideLLM (JSON)", "benchmarks | metrics", VALIDATE),
)
"""by keys anywhere near the beginning; the first that fits"""
CSV_FORMATS: tuple[Format, ...] = (
    _format("a BurstGPT trace", "Timestamp | Request tokens | Response tokens", READ),
    _format("a trace of Vidur", "arrived_at | num_prefill_tokens | num_decode_tokens", READ),
    _format("lengths of Vidur", "num_prefill_tokens | num_decode_tokens", READ),
    _format("a trace of splitwise-sim", "prompt_size | token_size", READ),
    _format("rates of ServeGen", "client_id | window_start_s | rate_rps", READ),
    _format(
        "lengths of ServeGen", "client_id | window_start_s | field | value | prob",
        "give the file of rates beside it, which is read as a trace",
    ),
    _format("statistics of Locust", "Request Count | Failure Count", NO_REQUESTS),
    _format("a history of Locust", "User Count | Requests/s", NO_REQUESTS),
    _format("failures of Locust", "Method | Name | Error | Occurrences", NO_REQUESTS),
    _format("results of JMeter", "timeStamp | elapsed | label", f"it has no token counts; log them, and {TO_TRACE}"),
    _format("samples of k6", "metric_name | metric_value", NO_REQUESTS),
    _format("OpenTelemetry spans", "trace_id | span_id", f"take one span a request, and {TO_TRACE}"),
    _format("spans of a tracer", "traceId | spanId", f"take one span a request, and {TO_TRACE}"),
    _format("measured events", "request | arrival | time | tokens", "`llmqsim metrics` reads it"),
    _format(
        "an Azure trace", "TIMESTAMP | ContextTokens | GeneratedTokens",
        "replay it with `workload: {trace: FILE}`, or fit its lengths with `llmqsim workload fit`",
    ),
    _format(
        "a trace of llmqsim", "arrival_s | prompt_tokens | output_tokens",
        "replay it with `workload: {trace: FILE}`, or fit its lengths with `llmqsim workload fit`",
    ),
)  # fmt: skip
MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"PAR1", "Parquet; write it as CSV, as `pandas.read_parquet(…).to_csv(…, index=False)` does"),
    (b"ARROW1", "Arrow; write it as CSV"),
    (b"Obj\x01", "Avro; write it as CSV"),
    (b"PK\x03\x04", "a zip archive or a spreadsheet; give the CSV in it"),
    (b"SQLite format 3", "an SQLite database; write the table as CSV"),
    (b"\x28\xb5\x2f\xfd", "packed by zstd; unpack it, or pack it by gzip"),
    (b"BZh", "packed by bzip2; unpack it, or pack it by gzip"),
    (b"\xfd7zXZ", "packed by xz; unpack it, or pack it by gzip"),
    (b"\x93NUMPY", "a NumPy array; write it as CSV"),
    (b"%PDF", "a PDF"),
    (b"\xff\xfe", "UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text; save it as UTF-8"),
)
LINES: tuple[tuple[str, str], ...] = (
    (r"\Aversion https://git-lfs", "a pointer of git-lfs and not the file itself; run `git lfs pull`"),
    (r"(?im)\A\s*<(!doctype|html|\?xml)", "a page (HTML or XML) and not the file itself; download the raw file"),
    (r"(?m)^# (HELP|TYPE) \S+", f"metrics in Prometheus' text format: {NO_REQUESTS}; {SCRAPES}"),
    (r'(?m)\A[a-zA-Z_:][\w:]*\{\w+="[^"\n]*".*\} \S+$', f"metrics in Prometheus' text format: {NO_REQUESTS}; {SCRAPES}"),
    (r"(?m)\A(\(.*?\) )?(INFO|WARNING|DEBUG|ERROR) \d\d-\d\d ", f"the log of a server; {TO_TRACE}"),
    (r"(?m)\A\S+ \S+ \S+ \[\d\d/\w{3}/\d{4}:", f"the access log of a web server: it has no token counts; {TO_TRACE}"),
    (r"(?m)^kind: *bins *$", "a length table; use it as `lengths: {file: FILE}`"),
    (r"(?m)^(workload|model|engine|slo): *", "a scenario; `llmqsim run` takes it"),
)
SEPARATORS = {
    "\t": "tabs; separate columns by commas, as `tr '\\t' ',' < FILE > FILE.csv` does",
    ";": "semicolons; separate columns by commas, and write decimals with a point",
    "|": "bars; separate columns by commas",
    " ": "spaces; separate columns by commas",
}
CALLED: dict[str, str] = {
    "arrival_s": "arrival_ms arrival_us arrival_ns arrival_time arrival_timestamp arrived_at arrival timestamp time "
    "start_time request_time created_at created send_s send_time sent_at ts",
    "prompt_tokens": "request_tokens input_tokens input_length input_len prompt_len prompt_length prompt_size "
    "context_tokens contexttokens num_prefill_tokens num_prompt_tokens isl tokens_in",
    "output_tokens": "response_tokens completion_tokens generated_tokens generatedtokens output_length output_len "
    "answer_tokens response_length num_decode_tokens num_generated_tokens token_size osl tokens_out",
}
"""what others call our columns, lower case with _ between words"""


def binary(raw: bytes) -> str | None:
    """What a file that is no text most likely is, by its first bytes."""
    return next((name for mark, name in MAGIC if raw.startswith(mark)), None)


def recognise(text: str) -> Format | None:
    """The format of a text by its content; None where nothing of the kind is known."""
    head = text[:HEAD]
    for pattern, said in LINES:
        if re.search(pattern, head):
            name, _, advice = said.partition("; ")
            return Format(name, frozenset(), advice)
    if head.lstrip()[:1] in ("{", "["):
        return of_json(re.findall(r'"([^"\\\n]{1,60})"\s*:', head))
    line = head.partition("\n")[0]
    return of_columns(fields(line, separator(line) or ","))


def of_json(keys: Iterable[str]) -> Format:
    """The format of JSON with these keys; where none is known, JSON itself."""
    found = list(dict.fromkeys(keys))
    known = next((one for one in JSON_FORMATS if one.keys <= set(found)), None)
    return known or Format(f"JSON (keys {', '.join(found[:6]) or 'none'})", frozenset(), "")


def of_columns(names: Iterable[str]) -> Format | None:
    """The format of a table with these columns; None where it is not known."""
    have = {name.strip() for name in names}
    return next((one for one in CSV_FORMATS if one.keys <= have), None)


def separator(line: str) -> str | None:
    """What separates the columns of a header, where it is not the comma. Names may hold spaces, so these come last."""
    if "," in line:
        return None
    found = [sign for sign in SEPARATORS if sign in line.strip()]
    return max(found, key=lambda sign: (sign != " ", line.count(sign)), default=None)


def fields(line: str, sign: str = ",") -> list[str]:
    """The names in a header line."""
    return [name.strip() for name in next(csv.reader([line], delimiter=sign), [])]


def refuse_foreign(path: object, text: str, what: str, ours: Iterable[Sequence[str]], advise: bool = True) -> None:
    """Raise DataError, naming the format, where a text is of another one, or its columns are not separated by commas.

    what : what was expected, for the message. ours : sets of columns that the reader takes: a header with all of one of
    them is its own affair. advise : say how a trace would be made of it.
    """
    line = text[:HEAD].partition("\n")[0]
    sign = separator(line)
    names = fields(line, sign or ",")
    own = any(set(columns) <= set(names) for columns in ours)
    if own and sign is None:
        return
    parts = []
    if not own and (found := recognise(text)) is not None:
        parts.append(f"is {found.name}" + (f"; {found.advice}" if advise and found.advice else ""))
    columns = own or sign != " " and (parts or len(names) > 1)  # words with spaces between may be any text
    if sign is not None and columns and line.lstrip()[:1] not in ("{", "[", "<", "#"):
        parts.append(f"{'its' if parts else 'the'} columns are separated by {SEPARATORS[sign]}")
    if parts:
        place = path if parts[0].startswith("is ") else f"{path}:1"
        raise DataError(f"{place}: {'; '.join(parts)}. Expected: {what}")


def column_hint(wanted: str, header: Iterable[str]) -> str:
    """did_you_mean for a column that is missing: what others call it comes before what is merely spelled alike.

    A total of prompt and answer is never offered for one of them.
    """
    names = list(header)
    called = CALLED.get(wanted, "").split()
    for name in names:
        if re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") in called:
            return f"; did you mean '{name}'?"
    return did_you_mean(wanted, [name for name in names if "total" not in name.lower()])
