"""`vllm bench serve --save-result` and SGLang's `bench_serving --output-file` (JSON), which began as a copy of it.

Keys from memory: vLLM 0.6 to 0.2x (also the older benchmark_serving.py), SGLang 0.4 to 0.5. Each is told by keys that
only it writes. Rates and lengths are of the client. With --save-detailed (SGLang: --output-details) there is also a
length of every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmqsim.errors import DataError
from llmqsim.validate.cases import Case
from llmqsim.validate.tools.common import length_spec, made, number
from llmqsim.validate.tools.server import Server


@dataclass(frozen=True)
class Tool:
    """What one of them writes. marks : keys of every file of its own. latencies : its word -> ours."""

    name: str
    marks: frozenset[str]
    latencies: Mapping[str, str]


VLLM = Tool(
    "vllm bench serve",
    frozenset({"request_throughput", "mean_ttft_ms", "total_output_tokens", "num_prompts"}),
    {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"},
)
SGLANG = Tool(
    "sglang bench_serving",
    frozenset({"request_throughput", "total_output_tokens", "mean_e2e_latency_ms"}),
    {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e_latency": "e2e"},
)
"""the ITL of both is the gap between chunks"""


def tool_of(record: Mapping[str, Any]) -> Tool | None:
    """Whose result a record is; None where it is of neither."""
    return next((tool for tool in (SGLANG, VLLM) if tool.marks <= set(record)), None)


def case(record: Mapping[str, Any], path: str | Path, place: int, server: Server) -> Case:
    """The case of a record that is of one of them. Raises DataError, naming the key, where a run can't be known."""
    tool = tool_of(record)
    if tool is None:
        raise DataError(f"{path}: is no result of {VLLM.name} or {SGLANG.name}")
    counts = {
        key: number(record.get(key))
        for key in ("completed", "num_prompts", "total_input_tokens", "total_output_tokens")
    }
    done = counts["completed"]
    if not done:
        raise DataError(f"{path}: completed: no request was answered (got {record.get('completed')!r})")
    for key in ("total_input_tokens", "total_output_tokens"):
        if not counts[key]:
            raise DataError(f"{path}: {key}: missing; lengths can't be known without it")
    asked = int(counts["num_prompts"] or done)
    prompts, outputs = _lengths(record)
    workload: dict[str, Any] = {
        "n_requests": asked,
        "prompt_tokens": length_spec(prompts, counts["total_input_tokens"], done),
        "output_tokens": length_spec(outputs, counts["total_output_tokens"], done),
    }
    entry: dict[str, Any] = _measured(record, int(done), asked, tool)
    _load(record, workload, entry, asked, path)
    name = Path(path).stem + (f"-{place + 1}" if place else "")
    return made(path, name, server, record.get("model_id"), tool.name, workload, entry)


def _lengths(record: Mapping[str, Any]) -> tuple[list | None, list | None]:
    """Lengths of the requests that were answered, where every one was saved."""
    prompts, outputs = record.get("input_lens"), record.get("output_lens")
    if not isinstance(prompts, list) or not isinstance(outputs, list) or len(prompts) != len(outputs):
        return None, None
    kept = [(p, o) for p, o in zip(prompts, outputs, strict=True) if number(p) and number(o)]
    return ([p for p, _ in kept], [o for _, o in kept]) if kept else (None, None)


def _load(record: Mapping[str, Any], workload: dict, entry: dict, asked: int, path: str | Path) -> None:
    """Rate, burstiness and cap. Without a rate all requests are sent at once, or as a cap lets them."""
    rate, cap = number(record.get("request_rate")), number(record.get("max_concurrency"))
    burstiness = number(record.get("burstiness")) or 1.0
    if rate is None and str(record.get("request_rate", "inf")).lower() not in ("inf", "infinity", "none"):
        raise DataError(f"{path}: request_rate: must be a rate or inf (got {record.get('request_rate')!r})")
    if rate:
        kind = {"process": "poisson"} if burstiness == 1.0 else {"process": "gamma", "burstiness": burstiness}
        workload["arrival"] = {**kind, "rate_per_s": rate}
        if cap:
            workload["client_max_in_flight"] = int(cap)
    elif cap:
        workload["arrival"] = {"process": "closed_loop"}
        entry["concurrency"] = min(int(cap), asked)
    else:
        workload["arrival"] = {"process": "all_at_once"}


def _measured(record: Mapping[str, Any], done: int, asked: int, tool: Tool) -> dict[str, Any]:
    entry: dict[str, Any] = {"n_ok": done}
    if record.get("num_prompts") is not None:
        entry["n_failed"] = asked - done
    for word, ours in tool.latencies.items():
        stats = {}
        for key, value in record.items():
            stat, _, rest = key.partition("_")
            if rest == f"{word}_ms" and number(value) is not None and stat != "std":
                stats["p50" if stat == "median" else stat] = number(value)
        if stats:
            entry[f"{ours}_ms"] = stats
    rates = {
        "req_s": "request_throughput",
        "output_tok_s": "output_throughput",
        "total_tok_s": "total_token_throughput",
    }
    entry["throughput"] = {ours: value for ours, key in rates.items() if (value := number(record.get(key))) is not None}
    if duration := number(record.get("duration")):
        entry["duration_s"] = duration
    return entry
