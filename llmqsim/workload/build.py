"""The whole workload, drawn before the clock starts: `build` makes the request table of a run.

Request i has the same lengths whatever the rate, the number of requests or the duration; prompt and output lengths come
from one uniform number each, so that variants of a scenario serve the same rows (common random numbers).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmqsim.errors import ScenarioError
from llmqsim.requests import RequestTable
from llmqsim.rng import stream
from llmqsim.units import NS_PER_S
from llmqsim.workload import lengths as distributions
from llmqsim.workload.arrivals import arrival_ns, to_ns
from llmqsim.workload.lengths import MAX_TOKENS
from llmqsim.workload.table_file import load_preset, load_table
from llmqsim.workload.trace import read_trace


@dataclass(frozen=True)
class Workload:
    """The requests of a run, what a reader should know about them, where they come from, and their rate."""

    table: RequestTable
    notes: tuple[str, ...]
    source: str
    offered_rate_per_s: float
    """requests per second: the process's rate, a trace's mean rate; inf when all arrive at once"""


@dataclass
class _Rows:
    arrival_ns: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    rate: float
    source: str


def build(
    workload: dict[str, Any], *, seed: int, replication: int, base_folder: str | Path, max_model_len: int | None
) -> Workload:
    """Draw or read all requests of a run.

    workload : the scenario's `workload` as plain values in SI units (keys absent or None where not given).
    base_folder : where relative file names start. max_model_len : tokens; limits answers when `max_tokens` is 'model'.
    Raises ScenarioError for a workload that can't be made, DataError for a file that can't be read.
    """
    given = {k: v for k, v in workload.items() if v is not None}
    notes: list[str] = []
    if "trace" in given:
        rows = _replay(given, Path(base_folder), notes)
    else:
        rows = _generate(given, seed, replication, Path(base_folder), notes)
    if not len(rows.arrival_ns):
        raise ScenarioError(
            f"workload.duration: no request arrives before {given.get('duration'):g} s; "
            "raise the duration or the rate, or give workload.requests"
        )
    output, max_tokens = _limit(rows, given.get("max_tokens", "model"), max_model_len, notes)
    table = RequestTable.from_columns(
        arrival_ns=rows.arrival_ns, prompt_tokens=rows.prompt, output_tokens=output, max_tokens=max_tokens
    )
    return Workload(table, tuple(notes), rows.source, rows.rate)


def _generate(given: dict, seed: int, replication: int, folder: Path, notes: list[str]) -> _Rows:
    arrivals = given.get("arrivals") or {}
    times = arrival_ns(arrivals, given.get("requests"), given.get("duration"), stream(seed, replication, "arrivals"))
    u_prompt = stream(seed, replication, "prompt_lengths").random(len(times))
    u_output = stream(seed, replication, "output_lengths").random(len(times))
    prompt, output, source = _draw(given.get("lengths"), u_prompt, u_output, folder, notes)
    process, rate = arrivals["process"], arrivals.get("rate")
    if process == "burst":
        return _Rows(times, prompt, output, float("inf"), f"burst at 0 s; {source}")
    spread = "".join(f", {k} {arrivals[k]:g}" for k in ("cv", "burstiness") if arrivals.get(k) is not None)
    return _Rows(times, prompt, output, float(rate), f"{process} arrivals, {rate:g} req/s{spread}; {source}")


def _draw(spec: Any, u_prompt: np.ndarray, u_output: np.ndarray, folder: Path, notes: list[str]):
    """Prompt and output tokens, int64[n] each, and where they come from."""
    if isinstance(spec, str):
        return *load_preset(spec).draw(u_prompt, u_output), f"lengths {spec}"
    if isinstance(spec, dict) and "file" in spec:
        return *load_table(folder / spec["file"]).draw(u_prompt, u_output), f"lengths from {Path(spec['file']).name}"
    if not isinstance(spec, dict) or set(spec) != {"prompt", "output"}:
        raise ScenarioError(
            f"workload.lengths: needs a preset name, {{file: ...}}, or prompt and output (got {spec!r})"
        )
    columns, words = [], []
    for name, u in (("prompt", u_prompt), ("output", u_output)):
        law = distributions.parse(spec[name], f"workload.lengths.{name}")
        columns.append(law.quantile(u))
        words.append(f"{name} {law.describe()}")
        if isinstance(law, distributions.Clipped):
            _note_clipped(law, columns[-1], u, name, notes)
    return *columns, "; ".join(words)


def _note_clipped(law: distributions.Clipped, drawn: np.ndarray, u: np.ndarray, name: str, notes: list[str]) -> None:
    free = law.inner.quantile(u)
    changed = int(np.count_nonzero(free != drawn))
    if changed:
        notes.append(
            f"{changed:,} of {len(drawn):,} {name} lengths were set to min or max: "
            f"mean {drawn.mean():,.0f} tokens, {free.mean():,.0f} without the limits"
        )


def _replay(given: dict, folder: Path, notes: list[str]) -> _Rows:
    spec = given["trace"] if isinstance(given["trace"], dict) else {"file": given["trace"]}
    clash = [k for k in ("arrivals", "lengths") if k in given]
    if clash:
        raise ScenarioError(f"workload.trace: replaces arrivals and lengths; remove workload.{clash[0]} or the trace")
    trace = read_trace(folder / spec["file"], format=spec.get("format") or "auto")
    scale = 1.0 if spec.get("rate_scale") is None else float(spec["rate_scale"])
    if not 0 < scale < float("inf"):
        raise ScenarioError(f"workload.trace.rate_scale: must be above 0 (got {scale:g})")
    times = to_ns(trace.arrival_s / scale)
    kept = len(times)
    if "duration" in given:
        kept = int(np.searchsorted(times, to_ns(np.array([given["duration"]]))[0], side="left"))
    if "requests" in given:
        if given["requests"] > len(times):
            notes.append(f"{given['requests']:,} requests asked for; the trace has {len(times):,}")
        kept = min(kept, given["requests"])
    times = times[:kept]
    notes.extend(trace.notes)
    if scale != 1:
        notes.append(f"the trace is replayed at {scale:g} times its rate")
    if kept and times[0] > 60 * NS_PER_S and times[0] > times[-1] - times[0]:
        first_s = times[0] / NS_PER_S
        notes.append(f"the first request of the trace arrives at {first_s:,.0f} s; the run idles until then")
    span_s = (times[-1] - times[0]) / NS_PER_S if kept > 1 else 0.0
    rate = (kept - 1) / span_s if span_s else float("inf")
    return _Rows(times, trace.prompt_tokens[:kept], trace.output_tokens[:kept], rate, trace.source)


def _limit(rows: _Rows, max_tokens: Any, max_model_len: int | None, notes: list[str]):
    """Output tokens as served and the limit that the server is told, int64[n] each."""
    output = rows.output
    if max_tokens == "output":
        return output, output
    if max_tokens == "model":
        if max_model_len is None:
            return output, np.full(len(output), MAX_TOKENS, dtype=np.int64)
        return output, np.maximum(max_model_len - rows.prompt, output)
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or not 1 <= max_tokens <= MAX_TOKENS:
        raise ScenarioError(
            f"workload.max_tokens: must be 'output', 'model' or a number of at least 1 (got {max_tokens!r})"
        )
    cut = int(np.count_nonzero(output > max_tokens))
    if cut:
        notes.append(f"{cut:,} outputs cut at max_tokens {max_tokens:,}")
    return np.minimum(output, max_tokens), np.full(len(output), max_tokens, dtype=np.int64)
