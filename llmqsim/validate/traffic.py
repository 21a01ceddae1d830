"""`workload` of a case to the scenario's `workload`: arrivals, lengths, prefixes, clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from llmqsim.errors import ScenarioError
from llmqsim.validate.campaigns import recurring_prompts
from llmqsim.validate.cases import Case
from llmqsim.validate.lengths import foreseen, output_length, prompt_length
from llmqsim.validate.sent import Sent

WAVES = 10
"""requests a client of a closed loop, where nobody says: what the sweeps' tools send"""
LEAST_LOOP = 20
INFERENCEX_SHORTEST = 0.8
"""InferenceX draws lengths from a range below the nominal one; its usual lower end, from memory"""
SERVER_S, SERVER_WARMUP_S = 900.0, 240.0
"""a long open-loop run (40 minutes and more) is cut to this; its start is left out, as it weighs little in the real one"""
OFFLINE_PER_GPU = 3000
TURNAROUND_S = 0.001
"""a client's next request leaves this long after an answer; any positive value is alike"""


@dataclass
class Traffic:
    """Scenario keys of the traffic. stage_rows : requests of each stage. static : one batch that starts together."""

    keys: dict[str, Any]
    run: dict[str, Any] = field(default_factory=dict)
    stage_rows: tuple[int, ...] = ()
    static: bool = False
    cold: bool = False
    """is the server's start in the run?"""
    clients: int = 0
    """of a closed loop"""
    longest_prompt: int = 0
    longest_tokens: int = 0
    notes: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


def traffic(case: Case, entry: Mapping[str, Any], product: str, sent: Sent | None) -> Traffic:
    """Raises ScenarioError, naming the key, for arrivals or lengths that can't be known."""
    work = case.workload
    made = Traffic({})
    prompt = output = None
    if sent is None:
        prompt, note = prompt_length(work.get("prompt_tokens"), entry, str(work.get("tool", "")))
        made.notes += [note] if note else []
        output, note = _output(work, entry)
        made.notes += [note] if note else []
        if _inferencex(case):
            prompt, output = _range(prompt), _range(output)
        made.keys["lengths"] = {"prompt": prompt, "output": output}
        made.longest_prompt, made.longest_tokens = _longest(prompt), _longest(prompt) + _longest(output)
    else:
        made.keys["trace"] = {"file": "sent.csv", "format": "llmqsim", "time_unit": "s"}
        made.longest_prompt = int(sent.prompt_tokens.max())
        made.longest_tokens = int((sent.prompt_tokens + sent.output_tokens).max())
    stops = not foreseen(work.get("output_tokens"))
    made.keys["max_tokens"] = 1024 if stops and sent is None else "output"
    _arrivals(made, case, entry, sent)
    made.cold = "inference-perf" in str(work.get("tool", "")) or "cold start" in str(work.get("warmup", ""))
    _prefix(made, recurring_prompts(case.config, product) or work.get("prefix"))
    _clients(made, work)
    _classes(made, work.get("classes"), sent)
    return made


def _output(work: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The answers' lengths; for a first-token figure two tokens are enough."""
    if entry.get("stage") == "first_token" and not entry.get("osl"):
        return 2, None
    return output_length(work.get("output_tokens"), entry)


def _inferencex(case: Case) -> bool:
    return str(case.config.get("campaign", "")).lower().startswith("inferencex")


def _range(length: Any) -> Any:
    return {"uniform": [max(1, round(INFERENCEX_SHORTEST * length)), length]} if isinstance(length, int) else length


def _longest(length: Any) -> int:
    if isinstance(length, int):
        return length
    if "uniform" in length:
        return length["uniform"][1]
    return int(length.get("max") or 4 * next(iter(length.values()))["mean"])


def _arrivals(made: Traffic, case: Case, entry: Mapping[str, Any], sent: Sent | None) -> None:
    arrival = case.workload.get("arrival") or {}
    process = str(arrival.get("process", "")).lower() if isinstance(arrival, Mapping) else str(arrival).lower()
    arrival = arrival if isinstance(arrival, Mapping) else {}
    stages = arrival.get("stages")
    if sent is not None:
        made.stage_rows = tuple(_stage_rows(stages)) if stages else ()
        return
    concurrency = entry.get("concurrency", arrival.get("concurrency"))
    if "closed" in process or concurrency:
        _closed(made, concurrency, entry, case)
    elif "static" in process or entry.get("batch"):
        made.static = True
        made.keys |= {
            "requests": int(entry.get("batch") or arrival.get("batch") or 1),
            "arrivals": {"process": "burst"},
        }
    elif stages:
        _staged(made, process, arrival, stages, case.workload.get("n_requests"))
    elif rate := entry.get("rate_per_s") or arrival.get("rate_per_s"):
        _server(made, float(rate), process, arrival, case, entry)
    elif any(word in process for word in ("all_at_once", "all at once", "burst", "offline")):
        n = entry.get("n_ok") or entry.get("n") or entry.get("n_requests") or case.workload.get("n_requests")
        made.keys |= {"requests": int(n or _dataset(case) or 1000), "arrivals": {"process": "burst"}}
    elif arrival.get("span_s") and case.workload.get("n_requests"):
        n, span = int(case.workload["n_requests"]), float(arrival["span_s"])
        made.keys |= {"requests": n, "arrivals": {"process": "poisson", "rate": n / span, "fixed_count": True}}
        made.outside.append("the schedule itself is not known: Poisson arrivals over the same span")
    else:
        raise ScenarioError(
            f"workload.arrival: no arrivals that are known (got process '{process}' without stages or rate)"
        )


def _closed(made: Traffic, concurrency: Any, entry: Mapping[str, Any], case: Case) -> None:
    if not concurrency:
        raise ScenarioError("concurrency: missing; a closed loop needs the number of clients")
    n = entry.get("n_requests") or case.workload.get("n_requests") or max(LEAST_LOOP, WAVES * int(concurrency))
    made.keys |= {"requests": int(n), "arrivals": {"process": "closed_loop", "clients": int(concurrency)}}
    made.keys["clients"] = {"turnaround": TURNAROUND_S}
    made.clients = int(concurrency)


def _stage_rows(stages: list) -> list[int]:
    return [int(stage.get("n") or stage["rate_per_s"] * stage["duration_s"]) for stage in stages]


def _staged(made: Traffic, process: str, arrival: Mapping[str, Any], stages: list, total: Any) -> None:
    """Stages with their counts; one stage with a count of its own for the whole run takes that."""
    rows = _stage_rows(stages)
    if len(rows) == 1 and total:
        rows = [int(total)]
    shapes = [
        {"rate": n / float(s["duration_s"]), "duration": float(s["duration_s"])}
        for n, s in zip(rows, stages, strict=True)
    ]
    made.keys |= {"requests": sum(rows), "arrivals": {**_process(process, arrival), "stages": shapes}}
    made.stage_rows = tuple(rows)


def _process(process: str, arrival: Mapping[str, Any]) -> dict[str, Any]:
    if "constant" in process or "uniform" in process:
        return {"process": "constant"}
    if "gamma" in process or arrival.get("cv") or arrival.get("burstiness"):
        kept = {key: float(arrival[key]) for key in ("cv", "burstiness") if arrival.get(key)}
        return {"process": "gamma", **kept} if kept else {"process": "poisson", "fixed_count": True}
    if "poisson" in process or process in ("", "open_loop"):
        return {"process": "poisson", "fixed_count": True}
    raise ScenarioError(
        f"workload.arrival.process: unknown (got '{process}'); known: poisson, constant, gamma, closed_loop, all_at_once"
    )


def _server(
    made: Traffic, rate: float, process: str, arrival: Mapping[str, Any], case: Case, entry: Mapping[str, Any]
) -> None:
    n = entry.get("n_requests") or case.workload.get("n_requests")
    kind = _process("poisson" if "poisson" in process else process, arrival)
    if n:
        kind.pop("fixed_count", None) if kind["process"] != "poisson" else None
        made.keys |= {"requests": int(n), "arrivals": {**kind, "rate": rate}}
        return
    duration = arrival.get("duration_s")
    if duration:
        made.keys |= {"duration": float(duration), "arrivals": {"process": kind["process"], "rate": rate}}
        return
    kind.pop("fixed_count", None)
    made.keys |= {"duration": SERVER_S, "arrivals": {**kind, "rate": rate}}
    made.run["warmup"] = {"time": SERVER_WARMUP_S}
    made.notes.append(f"{SERVER_S:g} s are simulated, the first {SERVER_WARMUP_S:g} s left out")


def _dataset(case: Case) -> int | None:
    """Requests of an offline run: the samples of the data set, or enough for each GPU that the end weighs little."""
    found = re.search(r"(\d[\d,]*) samples", str((case.workload.get("prompt_tokens") or {}).get("dataset", "")))
    if found is None:
        return None
    return max(int(found[1].replace(",", "")), OFFLINE_PER_GPU * int(case.config.get("n_gpus") or 1))


def _prefix(made: Traffic, spec: Any) -> None:
    """Prompts that recur, and starts that groups of prompts share."""
    if not isinstance(spec, Mapping):
        return
    distinct, shared = spec.get("distinct_prompts"), spec.get("shared_system_tokens") or spec.get("shared_tokens")
    keys: dict[str, Any] = {}
    if isinstance(distinct, int):
        keys["distinct_prompts"] = distinct
    if shared:
        keys["shared_tokens"] = int(shared)
    if not keys:
        return
    keys["groups"] = int(spec.get("groups") or 1)
    if "round_robin" in str(spec.get("order", "")):
        keys["order"] = "round_robin"
    made.keys["prefix"] = keys


def _clients(made: Traffic, work: Mapping[str, Any]) -> None:
    clients = dict(made.keys.get("clients") or {})
    if timeout := work.get("client_timeout_s"):
        clients["timeout"] = float(timeout)
    if cap := work.get("client_max_in_flight") or work.get("max_concurrency"):
        clients |= {"max_in_flight": int(cap), "turnaround": TURNAROUND_S}
    if clients:
        made.keys["clients"] = clients


def _classes(made: Traffic, spec: Any, sent: Sent | None) -> None:
    """Classes by their shares, written as "1/6 of requests", 0.17 or {share: 0.17}; a table names them itself."""
    if not isinstance(spec, Mapping) or (sent is not None and sent.tenant is None):
        return
    if sent is not None:
        return
    shares = {str(name): share for name, text in spec.items() if (share := _share(text)) is not None}
    if shares and abs(sum(shares.values()) - 1) < 1e-3:
        total = sum(shares.values())
        made.keys["classes"] = {name: {"share": share / total} for name, share in shares.items()}


def _share(text: Any) -> float | None:
    value = text.get("share") if isinstance(text, Mapping) else text
    if isinstance(value, (int, float)):
        return float(value)
    found = re.search(r"(\d+)\s*/\s*(\d+)|(\d+(?:\.\d+)?)\s*%", str(value))
    if found is None:
        return None
    return float(Fraction(int(found[1]), int(found[2]))) if found[1] else float(found[3]) / 100
