"""Requests from nested JSON: conversations, agent runs, spans, and results of vLLM bench serve."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from llmqsim.workload.reading.json_files import Builder, value_of, values
from llmqsim.workload.reading.options import How
from llmqsim.workload.reading.sheet import Sheet
from llmqsim.workload.reading.texts import counter

ASKS = {"human", "user", "system", "tool", "developer", "function"}
ANSWERS = {"gpt", "assistant", "chatgpt", "bing", "bard", "model"}
INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens", "llm.token_count.prompt")
OUTPUT = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens",
    "llm.token_count.completion",
)  # fmt: skip
CACHED = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens")
CALLS = {"chat", "text_completion", "generate_content", "completion"}
"""values of gen_ai.operation.name that are calls of a model; agents and tools repeat what their calls used"""


def detect(record: Mapping[str, Any]) -> str | None:
    """Which of these formats an object is of; None for none of them."""
    keys = set(record)
    if "resourceSpans" in keys or ("attributes" in keys and keys & {"startTimeUnixNano", "start_time", "startTime"}):
        return "otel"
    if {"input_lens", "output_lens"} <= keys:
        return "vllm-bench"
    if "conversations" in keys or "conversation" in keys:
        return "sharegpt"
    if isinstance(record.get("messages"), list):
        return "swe-agent" if any(_usage(message) for message in record["messages"]) else "sharegpt"
    return None


def read_records(name: str, path: str, what: str, how: How) -> Sheet:
    """All requests of a file, or of a folder of files. name : of the format. Raises DataError, UserError."""
    return READERS[name](path, what, how)


def _each(builder: Builder, path: str, what: str, how: How) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects of a file; what is none becomes a fault."""
    for line, record, fault in values(path, what, how.skip_bad):
        if fault:
            builder.faults.append((line, fault))
        else:
            yield line, record


def _sharegpt(path: str, what: str, how: How) -> Sheet:
    count, said = counter(how.tokenizer, how.chars_per_token)
    builder = Builder(path, ("arrival_s", "prompt_tokens", "output_tokens"), ("session_id", "turn", "new_prompt_tokens"))
    empty = 0
    for line, record in _each(builder, path, what, how):
        turns = record.get("conversations") or record.get("conversation") or record.get("messages")
        if not isinstance(turns, list):
            builder.faults.append((line, "has no list of turns (conversations, or messages)"))
            continue
        said_before, new, turn = 0, 0, 0
        for one in turns:
            who, tokens = _turn(one, count)
            if who == "answer":
                if said_before and tokens:
                    more = {"session_id": str(line), "turn": turn, "new_prompt_tokens": new}
                    builder.add(line, None, said_before, tokens, more)
                    turn += 1
                else:
                    empty += 1
                new = 0
            elif who == "ask":
                new += tokens
            else:
                builder.faults.append((line, f"a turn is of nobody known (got {json.dumps(one)[:60]})"))
                break
            said_before += tokens
    builder.notes.append(said)
    if empty:
        builder.notes.append(f"{empty:,} answers without a prompt or without text were left out")
    return builder.sheet()


def _turn(one: Any, count: Callable[[str], int]) -> tuple[str, int]:
    """Who speaks, and how many tokens."""
    if not isinstance(one, Mapping):
        return "", 0
    who = str(one.get("from") or one.get("role") or "").lower()
    text = one.get("value") if "value" in one else one.get("content")
    if isinstance(text, list):  # parts of a message
        text = "".join(str(part.get("text") or "") for part in text if isinstance(part, Mapping))
    tokens = count(text) if isinstance(text, str) else 0
    return ("answer" if who in ANSWERS else "ask" if who in ASKS else ""), tokens


def _usage(message: Any) -> Mapping[str, Any] | None:
    """The part of a message that says what the model was asked and when: {usage: {...}, created}."""
    if not isinstance(message, Mapping):
        return None
    for place in (message, *(message.get(key) for key in ("extra", "response"))):
        if isinstance(place, Mapping):
            inner = place.get("response") if isinstance(place.get("response"), Mapping) else place
            if isinstance(inner, Mapping) and isinstance(inner.get("usage"), Mapping):
                return inner
    return None


def _swe_agent(path: str, what: str, how: How) -> Sheet:
    more = ("session_id", "turn", "cached_tokens", "reasoning_tokens")
    builder = Builder(path, ("created", "prompt_tokens", "completion_tokens"), more, unordered=True)
    for line, record in _each(builder, path, what, how):
        turn = 0
        for message in record.get("messages") or ():
            answer = _usage(message)
            if answer is None:
                continue
            usage = answer["usage"]
            details = {
                "cached_tokens": (usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
                "reasoning_tokens": (usage.get("completion_tokens_details") or {}).get("reasoning_tokens"),
            }
            prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
            output = usage.get("completion_tokens", usage.get("output_tokens"))
            builder.add(line, answer.get("created"), prompt, output, {"session_id": str(line), "turn": turn, **details})
            turn += 1
        if not turn:
            builder.faults.append((line, "has no message with the usage of a model"))
    builder.notes.append("an agent's requests wait for the answers before: their times are a result of that service")
    return builder.sheet()


def _attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    """A span's attributes as a mapping, from OTLP's list or as they are."""
    given = span.get("attributes")
    if isinstance(given, Mapping):
        return dict(given)
    found: dict[str, Any] = {}
    for one in given or ():
        if isinstance(one, Mapping) and isinstance(one.get("value"), Mapping):
            kind, value = next(iter(one["value"].items()), ("", None))
            found[str(one.get("key"))] = value_of(value) if kind in ("intValue", "doubleValue") else value
    return found


def _spans(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "resourceSpans" not in record:
        yield record
        return
    for resource in record.get("resourceSpans") or ():
        for scope in (resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")) or ():
            yield from scope.get("spans") or ()


def _otel(path: str, what: str, how: How) -> Sheet:
    builder = Builder(path, ("start time", "input tokens", "output tokens"),
                      ("session_id", "max_tokens", "cached_tokens"), unordered=True)  # fmt: skip
    others, silent = 0, 0
    for line, record in _each(builder, path, what, how):
        for span in _spans(record):
            about = _attributes(span)
            operation = about.get("gen_ai.operation.name")
            asked = next((about[key] for key in INPUT if key in about), None)
            answered = next((about[key] for key in OUTPUT if key in about), None)
            if operation is not None and operation not in CALLS:
                others += 1
            elif asked is None or answered is None:
                silent += 1
            else:
                stamp, fault = _start(span)
                if fault:
                    builder.faults.append((line, fault))
                    continue
                more = {
                    "session_id": about.get("gen_ai.conversation.id"),
                    "max_tokens": about.get("gen_ai.request.max_tokens"),
                    "cached_tokens": next((about[key] for key in CACHED if key in about), None),
                }
                builder.add(line, stamp, asked, answered, more)
    if others:
        builder.notes.append(f"{others:,} spans of agents, tools and embeddings were left out (gen_ai.operation.name)")
    if silent:
        builder.notes.append(f"{silent:,} spans without token counts were left out")
    return builder.sheet()


def _start(span: Mapping[str, Any]) -> tuple[Any, str]:
    """When a span began: a date, or ns since 1970 as a date. The second is a fault, or empty."""
    import numpy as np

    nano = span.get("startTimeUnixNano")
    if nano is None:
        stamp = span.get("start_time", span.get("startTime"))
        if isinstance(stamp, str):
            return stamp, ""
        return None, f"a span's start time must be a date, or startTimeUnixNano (got {str(stamp)[:40]!r})"
    try:
        whole = int(nano)
        return str(np.datetime64(whole, "ns")), ""
    except (ValueError, TypeError, OverflowError):
        return None, f"startTimeUnixNano: must be whole ns since 1970 (got {str(nano)[:40]!r})"


def _vllm_bench(path: str, what: str, how: How) -> Sheet:
    builder = Builder(path, ("start_times", "input_lens", "output_lens"), times=False)
    failed, timeless = 0, False
    for line, record in _each(builder, path, what, how):
        prompts, outputs = record.get("input_lens"), record.get("output_lens")
        starts, errors = record.get("start_times"), record.get("errors") or []
        if not isinstance(prompts, list) or not isinstance(outputs, list) or len(prompts) != len(outputs):
            builder.faults.append((line, "input_lens and output_lens must be lists of one length (--save-detailed)"))
            continue
        if isinstance(starts, list) and len(starts) != len(prompts):
            builder.faults.append((line, f"start_times has {len(starts):,} entries, input_lens {len(prompts):,}"))
            continue
        zero = min((s for s in starts if isinstance(s, (int, float))), default=0.0) if isinstance(starts, list) else 0.0
        timeless |= not isinstance(starts, list)
        for i, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
            if output == 0 or (i < len(errors) and errors[i]):
                failed += 1
                continue
            start = starts[i] - zero if isinstance(starts, list) and isinstance(starts[i], (int, float)) else None
            builder.add(line, start, prompt, output)
    builder.unordered = True
    if failed:
        builder.notes.append(f"{failed:,} requests that failed were left out")
    if timeless:
        builder.notes.append("the result has no start_times, which newer versions write: lengths only")
    return builder.sheet()


READERS: dict[str, Callable[[str, str, How], Sheet]] = {
    "sharegpt": _sharegpt,
    "swe-agent": _swe_agent,
    "otel": _otel,
    "vllm-bench": _vllm_bench,
}
