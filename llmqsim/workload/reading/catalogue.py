"""The formats that are read: what each calls the columns of a trace, in which unit its times are, and how we know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

OWN, SAMPLE, MEMORY = "own", "sample", "memory"
KNOWN = {
    OWN: "ours",
    SAMPLE: "key names checked against published rows",
    MEMORY: "key names from memory: not checked against a file of that tool",
}
TABLE, RECORDS, SUMMARY = "table", "records", "summary"


@dataclass(frozen=True)
class TraceFormat:
    """One format. kind : table (one row or flat object a request), records (nested JSON), summary (requests are drawn).

    columns : our names to theirs; those in `needed` make a file one of this format. unit : of times; "date" for time
    stamps with a date, "either" for dates or our own rules, "" for no times. failed : rows without tokens are requests
    that failed. unordered : rows are not in order of arrival. hash_tokens : tokens of a block of the prefix column.
    """

    name: str
    title: str
    kind: str
    known: str
    columns: Mapping[str, str] = field(default_factory=dict)
    unit: str = "either"
    also: str = ""
    failed: bool = False
    unordered: bool = False
    hash_tokens: int = 0

    @property
    def needed(self) -> tuple[str, ...]:
        """Their names of arrival (where it has one), prompt and output."""
        three = [v for k, v in self.columns.items() if k.startswith("arrival_")]
        return (*three, *(self.columns[name] for name in ("prompt_tokens", "output_tokens") if name in self.columns))

    @property
    def arrival(self) -> str:
        """Its column of arrivals, "" where it has none."""
        return next((theirs for ours, theirs in self.columns.items() if ours.startswith("arrival_")), "")


def _table(name: str, title: str, known: str, arrival: str, prompt: str, output: str, **more) -> TraceFormat:
    columns = {"arrival_s": arrival} if arrival else {}
    columns |= {"prompt_tokens": prompt, "output_tokens": output, **more.pop("columns", {})}
    return TraceFormat(name, title, TABLE, known, columns, **more)


FORMATS: dict[str, TraceFormat] = {
    one.name: one
    for one in (
        _table("llmqsim", "our own columns", OWN, "arrival_s", "prompt_tokens", "output_tokens",
               also="arrival_ms, arrival_us, arrival_ns; class, tenant, priority, max_tokens, prefix_hash_blocks, "
               "session_id, turn, new_prompt_tokens, cached_tokens, reasoning_tokens"),
        _table("azure", "Azure LLM inference trace, 2023 and 2024", SAMPLE, "TIMESTAMP", "ContextTokens",
               "GeneratedTokens", unit="date"),
        _table("burstgpt", "BurstGPT trace", MEMORY, "Timestamp", "Request tokens", "Response tokens", unit="s",
               failed=True, columns={"class": "Log Type", "tenant": "Model"},
               also="rows with 0 tokens are requests that failed: left out and counted"),
        _table("qwen-bailian", "Qwen-Bailian trace (JSON lines)", MEMORY, "timestamp", "input_length", "output_length",
               unit="s", hash_tokens=16,
               columns={"session_id": "chat_id", "class": "type", "turn": "turn", "prefix_hash_blocks": "hash_ids"},
               also="chat_id marks it; hash ids are prefixes, of 16 tokens each; a chat_id that names its parent "
               "(parent_chat_id) belongs to the parent's session"),
        _table("mooncake", "Mooncake trace (JSON lines)", MEMORY, "timestamp", "input_length", "output_length",
               unit="ms", hash_tokens=512, columns={"prefix_hash_blocks": "hash_ids"},
               also="hash ids are prefixes, of 512 tokens each"),
        _table("vidur", "Vidur trace", MEMORY, "arrived_at", "num_prefill_tokens", "num_decode_tokens", unit="s"),
        _table("vidur-lengths", "Vidur lengths", MEMORY, "", "num_prefill_tokens", "num_decode_tokens", unit="",
               also="lengths only"),
        _table("splitwise-sim", "splitwise-sim trace", MEMORY, "arrival_timestamp", "prompt_size", "token_size",
               unit="s"),
        _table("litellm", "LiteLLM spend logs (CSV, JSON)", MEMORY, "startTime", "prompt_tokens", "completion_tokens",
               unit="date", failed=True, unordered=True, columns={"session_id": "session_id"},
               also="rows with 0 tokens are calls that failed: left out and counted"),
        TraceFormat("sharegpt", "ShareGPT conversations, or chats as lists of messages (JSON)", RECORDS, MEMORY,
                    unit="", also="texts: tokens are counted by --tokenizer, else estimated by --chars-per-token; every "
                    "answer is a request whose prompt is all that was said before it; lengths only"),
        TraceFormat("swe-agent", "runs of mini-swe-agent (JSON, a file or a folder of them)", RECORDS, MEMORY,
                    unit="s", unordered=True, also="usage and created of each answer of the model; a run is a session"),
        TraceFormat("otel", "OpenTelemetry spans of generative AI (OTLP JSON, or one span a line)", RECORDS, MEMORY,
                    unit="date", unordered=True, also="gen_ai.usage.input_tokens and output_tokens, or their older "
                    "names; gen_ai.request.max_tokens; gen_ai.conversation.id is the session"),
        TraceFormat("vllm-bench", "vLLM bench serve, detailed (JSON)", RECORDS, MEMORY, unit="s",
                    also="input_lens, output_lens, start_times; without start_times lengths only"),
        TraceFormat("prometheus", "Prometheus text of vLLM, two scrapes", SUMMARY, MEMORY, unit="",
                    also="rate and length histograms between the scrapes (--second FILE --seconds N, or one file with "
                    "both and their time stamps); requests are drawn: Poisson, prompt and output independent"),
        TraceFormat("servegen", "tables of ServeGen clients (NAME_rates.csv beside NAME_lengths.csv)", SUMMARY, SAMPLE,
                    unit="", also="requests are drawn client by client; prompt and output independent"),
    )
}  # fmt: skip
TABLES: tuple[TraceFormat, ...] = tuple(one for one in FORMATS.values() if one.kind == TABLE)


def of_table(names: Iterable[str]) -> TraceFormat | None:
    """The format of a table, or of flat objects, with these columns; None where none fits."""
    have = set(names)
    for one in TABLES:
        if one.name == "qwen-bailian" and "chat_id" not in have:
            continue
        if one.name == "litellm" and not have & {"spend", "call_type", "request_id", "api_key"}:
            continue
        if set(one.needed) <= have:
            return one
    return None


def formats_text() -> str:
    """What `llmqsim workload formats` prints."""
    lines = []
    for one in FORMATS.values():
        lines.append(f"{one.name}: {one.title}")
        if one.columns:
            lines.append("    " + ", ".join(f"{ours} = {theirs}" for ours, theirs in one.columns.items()))
        times = {"": "no times", "date": "dates", "either": "numbers or dates", "s": "seconds", "ms": "milliseconds"}
        lines.append(f"    times: {times[one.unit]}; {KNOWN[one.known]}")
        if one.also:
            lines.append(f"    {one.also}")
    lines.append(
        "CSV, TSV, semicolons, bars, JSON lines, JSON and Parquet; plain, gzip, zstd, bzip2 or xz. Any other table: "
        "--columns arrival_s=NAME,prompt_tokens=NAME,output_tokens=NAME"
    )
    return "\n".join(lines)
