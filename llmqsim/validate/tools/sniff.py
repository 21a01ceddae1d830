"""Which tool wrote a file, and cases from it; other tools' files are refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llmqsim import formats
from llmqsim.errors import DataError
from llmqsim.files import read_bytes
from llmqsim.validate.cases import Case
from llmqsim.validate.tools import aiperf, guidellm, vllm_bench
from llmqsim.validate.tools.server import Server

WHAT = "a result of vLLM bench serve (JSON), SGLang bench_serving (JSON), GuideLLM (JSON) or AIPerf (JSONL)"
NEAR = 20
"""values of a list that are looked at for keys"""
OTHERS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"avg_latency", "latencies"}), "vLLM `bench latency`; only `bench serve` has a server's queue in it"),
    (frozenset({"elapsed_time", "requests_per_second"}), "vLLM `bench throughput`; only `bench serve` is read"),
    (frozenset({"load_summary", "successes"}), "inference-perf; write its figures as a case (docs/validate.md)"),
    (frozenset({"experiments", "service_kind"}), "GenAI-Perf; its successor AIPerf is read (profile_export.jsonl)"),
    (frozenset({"input_config", "request_latency"}), "an AIPerf summary; give its records, profile_export.jsonl"),
    (frozenset({"results", "n-shot"}), "lm-evaluation-harness, which measures answers, not time"),
    (frozenset({"name", "num_completed_requests"}), "LLMPerf, which is not read"),
)
"""keys that only one tool's files have, and the tool"""


def is_tool_file(path: str | Path) -> bool:
    """Is this a file of a benchmark tool, by its suffix, rather than one of cases?"""
    return Path(path).suffix.lower() in (".json", ".jsonl", ".ndjson")


def read_tool_file(path: str | Path, server: Server) -> list[Case]:
    """The cases of one file. Raises DataError where it is of no known tool, or of a version that can't be read."""
    records = _records(path)
    first = records[0]
    if aiperf.is_record(first):
        return [aiperf.case(records, path, server)]
    if guidellm.is_report(first):
        return guidellm.cases(first, path, server)
    if all(vllm_bench.tool_of(record) is not None for record in records):
        return [vllm_bench.case(record, path, i, server) for i, record in enumerate(records)]
    for keys, tool in OTHERS:
        if set(first) >= keys:
            raise DataError(f"{path}: is of {tool}")
    known = formats.of_json(_keys(first))
    raise DataError(f"{path}: is of no tool that is read: {known.name}; {WHAT} was expected")


def _keys(value: Any) -> Iterator[str]:
    """Keys of an object, then those below it."""
    if isinstance(value, Mapping):
        yield from map(str, value)
        value = list(value.values())
    if isinstance(value, list):
        for one in value[:NEAR]:
            yield from _keys(one)


def _records(path: str | Path) -> list[Mapping[str, Any]]:
    """One JSON object, or several one after the other (JSON lines, or results that were appended)."""
    try:
        text = read_bytes(path, WHAT).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8 text; {WHAT} was expected") from None
    decoder, place, found = json.JSONDecoder(), 0, []
    while text[place:].strip():
        place += len(text[place:]) - len(text[place:].lstrip())
        try:
            value, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{error.lineno}: not JSON ({error.msg}); {WHAT} was expected") from None
        except RecursionError:
            raise DataError(f"{path}: nested too deeply; {WHAT} was expected") from None
        if not isinstance(value, Mapping):
            line = text.count("\n", 0, place) + 1
            raise DataError(f"{path}:{line}: must be a JSON object (got {type(value).__name__}); {WHAT} was expected")
        found.append(value)
    if not found:
        raise DataError(f"{path}: is empty; {WHAT} was expected")
    return found
