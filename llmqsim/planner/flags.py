"""A scenario from a few flags: `llmqsim size --model llama-3.1-8b --gpu h100-sxm --rate 20 --in 1000 --out 250 ...`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from llmqsim.errors import UserError, did_you_mean
from llmqsim.scenario.slo_text import SloError, parse_slo
from llmqsim.units import parse_rate, parse_seconds
from llmqsim.workload.table_file import load_preset, preset_names

USUAL_CV = 1.0
"""of a bare mean: prompts and answers of real services have 0.8 to 1.7 (presets/workloads)"""
_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:(?::|cv)\s*([A-Za-z][\w.-]*|\d+(?:\.\d+)?))?\s*", re.IGNORECASE)
FEWEST_MEASURED, MOST_REQUESTS = 2000, 40_000
WARM_ANSWERS, MEASURED_ANSWERS = 2, 8
"""times an answer at the TPOT target: how long the start-up is cut, how long is measured at least"""


FLAG_PLACES = {
    "model": "--model", "gpu": "--gpu", "routing": "--routing", "engine": "--engine", "slo": "--slo", "workload": "flags",
    "run": "flags",
}  # fmt: skip
"""key of the scenario that flags make -> the flag that gave it"""


@dataclass
class Asked:
    """What the flags say. mapping : a scenario as plain data. notes : what was assumed."""

    mapping: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def scenario_from(flags: dict[str, Any]) -> Asked:
    """A scenario from the flags of `llmqsim size` (None where not given). Raises UserError with every fault at once."""
    faults: list[str] = []
    asked = Asked({})
    for name, example in (("model", "llama-3.1-8b"), ("gpu", "h100-sxm")):
        if flags.get(name) is None:
            faults.append(f"--{name}: missing; give one, such as --{name} {example}, or a scenario file")
    slo = _collect(faults, lambda: slo_from(flags)) or {}
    if not slo:
        faults += [] if faults else ["--slo: missing; give targets, such as --ttft 500ms --tpot 50ms"]
    workload = _collect(faults, lambda: _workload(flags, asked)) or {}
    if faults:
        raise UserError(*faults)
    asked.mapping |= {
        "workload": workload,
        "model": {"config": flags["model"]} if str(flags["model"]).endswith(".json") else flags["model"],
        "gpu": flags["gpu"],
        "slo": slo,
        "routing": flags.get("routing") or "least_outstanding",
    }
    if flags.get("engine"):
        asked.mapping["engine"] = {"preset": flags["engine"]}
    if "trace" not in workload:
        _run_length(asked, slo)
    return asked


def slo_from(flags: dict[str, Any]) -> dict[str, Any]:
    """The `slo` that --slo, --ttft, --tpot, --e2e and --attainment say. Raises UserError."""
    found: dict[str, Any] = {}
    if flags.get("slo"):
        try:
            found = dict(parse_slo(flags["slo"]))
        except SloError as error:
            raise UserError(f"--slo: {error.problem} (got '{flags['slo']}'); {error.hint}") from None
    for name in ("ttft", "tpot", "e2e"):
        if (text := flags.get(name)) is not None:
            if name in found:
                raise UserError(f"--{name}: is in --slo, too; give it once")
            found[name] = _time(f"--{name}", text)
    if (text := flags.get("attainment")) is not None:
        found["attainment"] = _share(text)
    return found


def _time(option: str, text: str) -> float:
    try:
        value = parse_seconds(text)
    except UserError as error:
        raise UserError(f"{option}: {error.faults[0]}") from None
    if re.fullmatch(r"\s*[\d.]+\s*", text) and value >= 10:
        raise UserError(f"{option}: has no unit (got '{text}'); write {text}ms or {text}s")
    if not 0 < value <= 1e9:
        raise UserError(f"{option}: must be above 0 (got '{text}'); such as {option} 500ms")
    return value


def _share(text: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 < share < 1:
        why = "no finite run can show 100 %" if share == 1 else "must be above 0 and below 1"
        raise UserError(f"--attainment: {why} (got '{text}'); such as --attainment 0.95")
    return share


def _workload(flags: dict[str, Any], asked: Asked) -> dict[str, Any]:
    if flags.get("trace") is not None:
        if any(flags.get(name) is not None for name in ("in", "out", "lengths", "arrival_cv")):
            raise UserError("--trace: brings its own arrivals and lengths; leave out --in, --out, --lengths, --arrival-cv")
        return {"trace": {"file": flags["trace"]}}
    if flags.get("rate") is None:
        raise UserError("--rate: missing; give arrivals per second, such as --rate 20, or --trace FILE")
    try:
        rate = parse_rate(flags["rate"])
    except UserError as error:
        raise UserError(f"--rate: {error.faults[0]}") from None
    if not 0 < rate <= 1e6:
        raise UserError(f"--rate: must be above 0 (got '{flags['rate']}'); such as --rate 20")
    cv = flags.get("arrival_cv")
    arrivals = {"process": "poisson", "rate": rate} if cv is None else {"process": "gamma", "rate": rate, "cv": float(cv)}
    return {"arrivals": arrivals, "lengths": _lengths(flags, asked)}


def _lengths(flags: dict[str, Any], asked: Asked) -> Any:
    if flags.get("lengths") is not None:
        if flags.get("in") or flags.get("out"):
            raise UserError("--lengths: brings prompts and answers; leave out --in and --out")
        return flags["lengths"]
    missing = [name for name in ("in", "out") if flags.get(name) is None]
    if missing:
        raise UserError(f"--{missing[0]}: missing; a mean with its CV, such as --{missing[0]} 1000:1, or --lengths PRESET")
    bare = []
    made = {
        place: _length(f"--{name}", flags[name], column, bare)
        for name, place, column in (("in", "prompt", "prompt"), ("out", "output", "output"))
    }
    if bare:
        asked.notes.append(
            f"{' and '.join(bare)}: a bare mean says nothing about the tail that queues are made of; a log-normal with CV "
            f"{USUAL_CV:g} is assumed; write {bare[0]} MEAN:CV, or MEAN:PRESET for a preset's CV"
        )
    return made


def _length(option: str, text: str, column: str, bare: list[str]) -> Any:
    """A log-normal of "MEAN:CV" or "MEAN:PRESET"; CV 0 is a constant."""
    match = _LENGTH.fullmatch(str(text))
    if match is None or not 0 < float(match[1]) <= 1e7:
        raise UserError(f"{option}: must be a mean and its CV (got '{text}'); such as {option} 1000:1, or 1000:azure-code")
    mean, spread = float(match[1]), match[2]
    if spread is None:
        bare.append(option)
        cv = USUAL_CV
    elif spread[0].isdigit():
        cv = float(spread)
    elif spread in preset_names():
        cv = round(load_preset(spread).marginal(f"{column}_tokens").cv(), 3)
    else:
        known = preset_names()
        raise UserError(
            f"{option}: unknown length preset (got '{spread}'){did_you_mean(spread, known) or ';'} known: {', '.join(known)}"
        )
    if cv > 100:
        raise UserError(f"{option}: a CV above 100 is no traffic (got '{text}'); such as {option} 1000:1")
    return max(1, round(mean)) if cv < 1e-3 else {"lognormal": {"mean": mean, "cv": cv}}


def _run_length(asked: Asked, slo: dict[str, Any]) -> None:
    """Requests enough for several answers' time after the start-up, which is cut."""
    workload = asked.mapping["workload"]
    rate, lengths = workload["arrivals"]["rate"], workload["lengths"]
    output = _mean_output(lengths)
    tpot = min((s for key, s in slo.items() if key.startswith("tpot")), default=0.05)
    answer = min(output * tpot, *(s for key, s in slo.items() if key.startswith("e2e")), math.inf)
    warm = max(WARM_ANSWERS * answer, 1.0)
    requests = rate * warm + max(FEWEST_MEASURED, rate * MEASURED_ANSWERS * answer)
    workload["requests"] = int(min(MOST_REQUESTS, max(math.ceil(requests), FEWEST_MEASURED)))
    warm = min(warm, 0.3 * workload["requests"] / rate)
    asked.mapping["run"] = {"warmup": {"time": round(warm, 3)}}


def _mean_output(lengths: Any) -> float:
    if isinstance(lengths, str):
        return load_preset(lengths).marginal("output_tokens").mean()
    output = lengths["output"]
    return float(output) if not isinstance(output, dict) else float(output["lognormal"]["mean"])


def _collect(faults: list[str], make: Any) -> Any:
    try:
        return make()
    except UserError as error:
        faults += error.faults
        return None
