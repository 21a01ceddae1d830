"""Planted problems: a deployment that keeps its SLO, one thing made wrong, and whether advise names that first.

    python -m tests.scenarios.advise_problems 10 [CAUSE ...]

draws so many problems of each cause over models, GPUs, rates and lengths, asks advise, and simulates its advice under
a seed that it has not seen. The problems are the same in every process. What is right is known from how a problem is
made: the sound deployment keeps the SLO, the same with one thing wrong does not, and both are checked by runs before
anybody is asked.
"""

from __future__ import annotations

import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from llmqsim import from_mapping
from llmqsim.errors import UserError
from llmqsim.planner.advise.advise import advise
from llmqsim.planner.advise.trial import Bench, Loads, Trial
from llmqsim.planner.attain import Probe
from llmqsim.planner.vary import with_replicas
from llmqsim.simulation import prepare

OTHER_SEED, FRESH_RUNS = 40_000, 20
CHECKED_RUNS = 3
SOUND, BROKEN = 0.01, -0.05
"""margins over the share asked for, of the sound deployment at least and of the broken one at most"""
MOST_DRAWS = 40
Mapping = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """A sound deployment and the same with one thing wrong. share : of the sound one's capacity that is asked for."""

    sound: Mapping
    broken: list[Mapping]
    """from the mildest to the worst; the first that misses the SLO is taken"""
    share: float


@dataclass(frozen=True)
class Kind:
    """What may be wrong. causes : names for it, of which one must come first. levers : those that mend it."""

    make: Callable[[np.random.Generator], Pair]
    causes: tuple[str, ...]
    levers: tuple[str, ...]


def _between(draw: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(draw.uniform(np.log(low), np.log(high))))


def _length(mean: float, cv: float, most: int) -> Mapping:
    return {"lognormal": {"mean": round(mean), "cv": cv}, "max": most}


def _base(
    draw: np.random.Generator, prompt: tuple[float, float] = (300, 1500), answer: tuple[float, float] = (80, 300)
) -> Mapping:
    """A chat service on one to four GPUs. The rate is set later, from what the sound deployment carries."""
    cv = float(draw.choice([0.5, 0.8, 1.0]))
    lengths = {
        "prompt": _length(_between(draw, *prompt), cv, 8000),
        "output": _length(_between(draw, *answer), cv, 1500),
    }
    return {
        "workload": {"requests": 900, "arrivals": {"process": "poisson", "rate": 1.0}, "lengths": lengths},
        "model": str(draw.choice(["llama-3.1-8b", "qwen2.5-7b", "mistral-7b"])),
        "gpu": str(draw.choice(["h100-sxm", "a100-sxm-80gb", "h200"])),
        "replicas": int(draw.choice([1, 2, 4])),
        "routing": "least_outstanding",
        "slo": {
            "ttft": round(_between(draw, 0.5, 2), 2),
            "tpot": round(_between(draw, 0.035, 0.06), 4),
            "attainment": 0.95,
        },
    }


def _with(base: Mapping, **changes: Any) -> Mapping:
    """The same with other values; engine options and the workload are merged."""
    merged = {key: {**base.get(key, {}), **changes.pop(key)} for key in ("engine", "workload") if key in changes}
    return {**base, **changes, **merged}


def _slots(draw: np.random.Generator) -> Pair:
    base = _base(draw)
    return Pair(base, [_with(base, engine={"max_num_seqs": s}) for s in (32, 16, 8, 4, 2, 1)], draw.uniform(0.4, 0.7))


def _memory(draw: np.random.Generator) -> Pair:
    base = _base(draw, prompt=(1500, 4000), answer=(300, 800)) | {
        "gpu": str(draw.choice(["h100-sxm", "a100-sxm-80gb"]))
    }
    base = _with(base, engine={"max_model_len": 16_384})
    shares = (0.4, 0.34, 0.3, 0.28, 0.26)
    return Pair(base, [_with(base, engine={"gpu_memory_utilization": s}) for s in shares], draw.uniform(0.6, 0.85))


def _budget(draw: np.random.Generator) -> Pair:
    """Too small for the prompts, with as many slots as it allows."""
    base = _with(_base(draw, prompt=(2000, 5000), answer=(20, 60)), engine={"max_num_seqs": 32})
    return Pair(
        base,
        [_with(base, engine={"max_num_batched_tokens": b}) for b in (128, 96, 64, 48, 32)],
        draw.uniform(0.6, 0.85),
    )


def _both(draw: np.random.Generator) -> Pair:
    """Slots and budget alike: more slots alone are refused, a larger budget alone may do."""
    base = _base(draw, prompt=(600, 2000), answer=(80, 200))
    tight = [_with(base, engine={"max_num_seqs": s, "max_num_batched_tokens": s}) for s in (32, 24, 16, 12, 8)]
    return Pair(base, tight, draw.uniform(0.5, 0.8))


def _order(draw: np.random.Generator) -> Pair:
    """Prompts with a heavy tail in one line, few slots as memory is short; the long ones may wait."""
    base = _base(draw, answer=(20, 60)) | {"replicas": 1}
    lengths = {
        "prompt": {"lognormal": {"mean": round(_between(draw, 1500, 3000)), "cv": 3.0}, "max": 60_000},
        "output": 40,
    }
    base = _with(base, workload={"lengths": lengths}, engine={"max_model_len": 65_536})
    base["slo"] = {"ttft": round(_between(draw, 1, 2), 2), "attainment": 0.9}
    sound = _with(base, engine={"ordering": {"policy": "sjf", "by": "prompt", "ageing": 300}})
    return Pair(sound, [base], draw.uniform(0.94, 0.99))


def _priority(draw: np.random.Generator) -> Pair:
    """Chat and batch of the same lengths come in bursts, and wait in one line for a KV pool that is what it is."""
    base = _base(draw) | {"replicas": 1}
    classes = {"chat": {"share": 0.3, "priority": 0}, "batch": {"share": 0.7, "priority": 1, "slo": {"e2e": "30 min"}}}
    arrivals = {"process": "gamma", "cv": 3.0, "rate": 1.0}
    blocks = int(draw.choice([1000, 1500, 2000]))
    base = _with(base, workload={"arrivals": arrivals, "classes": classes}, engine={"num_gpu_blocks_override": blocks})
    base = _with(base, engine={"max_model_len": 9600})
    base["slo"] = {"ttft": round(_between(draw, 0.5, 1.5), 2), "attainment": 0.9}
    return Pair(_with(base, engine={"ordering": "priority"}), [base], draw.uniform(0.85, 0.97))


def _routing(draw: np.random.Generator) -> Pair:
    base = _base(draw, prompt=(1500, 4000)) | {"replicas": 4}
    return Pair(base, [base | {"routing": "random"}], draw.uniform(0.9, 0.97))


def _prefix(draw: np.random.Generator) -> Pair:
    base = _base(draw, prompt=(300, 900), answer=(40, 150))
    shared = round(_between(draw, 1500, 4000))
    lengths = {**base["workload"]["lengths"], "prompt": {**_length(shared * 1.15, 0.1, 8000), "min": shared + 16}}
    base = _with(
        base, workload={"lengths": lengths, "prefix": {"shared_tokens": shared, "groups": int(draw.choice([1, 4, 16]))}}
    )
    off = _with(base, engine={"enable_prefix_caching": False})
    return Pair(_with(base, engine={"enable_prefix_caching": True}), [off], draw.uniform(0.6, 0.85))


def _pools(draw: np.random.Generator) -> Pair:
    base = _base(draw, prompt=(300, 700), answer=(400, 900)) | {"gpu": str(draw.choice(["h100-sxm", "h200"]))}
    base["workload"]["requests"] = 6000  # fewer do not settle at the rate that four GPUs carry
    base["slo"] = {"ttft": 0.6, "tpot": round(_between(draw, 0.009, 0.012), 4), "attainment": 0.95}
    base = {key: value for key, value in base.items() if key != "replicas"} | {"handoff": {"link": "rdma-400g"}}

    def cut(prefill: int, decode: int) -> Mapping:
        return base | {"pools": {"prefill": {"replicas": prefill}, "decode": {"replicas": decode}}}

    return Pair(cut(1, 3), [cut(2, 2), cut(3, 1)], draw.uniform(0.6, 0.85))


def _too_wide(draw: np.random.Generator) -> Pair:
    base = _base(draw)
    base["workload"]["requests"] = 6000  # fewer do not settle at the rate that so many GPUs carry
    gpus = int(draw.choice([4, 8]))
    wide = base | {"replicas": 1, "tensor_parallel_size": gpus}
    return Pair(base | {"replicas": gpus}, [wide], draw.uniform(0.75, 0.9))


def _too_narrow(draw: np.random.Generator) -> Pair:
    """A TPOT that one GPU does not reach, and several together do."""
    base = _base(draw) | {
        "model": str(draw.choice(["qwen2.5-14b", "mistral-small-24b", "qwen2.5-32b"])),
        "gpu": str(draw.choice(["h100-sxm", "h200"])),
    }
    base["slo"] = {
        "ttft": 1.0,
        "tpot": {"qwen2.5-14b": 0.010, "mistral-small-24b": 0.015, "qwen2.5-32b": 0.018}[base["model"]],
        "attainment": 0.95,
    }
    return Pair(base | {"replicas": 1, "tensor_parallel_size": 4}, [base | {"replicas": 4}], draw.uniform(0.5, 0.8))


def _client_cap(draw: np.random.Generator) -> Pair:
    base = _base(draw)
    caps = [_with(base, workload={"clients": {"max_in_flight": c}}) for c in (64, 48, 32, 24, 16, 12, 8, 4, 2)]
    return Pair(base, caps, draw.uniform(0.5, 0.8))


def _bits(draw: np.random.Generator) -> Pair:
    """A TPOT between what one GPU takes to read the weights in 16 bits and in 8: no other lever reaches it."""
    base = _base(draw) | {"replicas": 1, "gpu": str(draw.choice(["h100-sxm", "h200"]))}
    base["slo"] = {"ttft": 1.0, "tpot": {"h100-sxm": 0.0062, "h200": 0.0046}[base["gpu"]], "attainment": 0.95}
    return Pair(_with(base, engine={"quantization": "fp8"}), [base], draw.uniform(0.4, 0.8))


def _hardware(draw: np.random.Generator) -> Pair:
    """Twice the GPUs keep it; half of them are far beyond what they carry."""
    base = _base(draw) | {"replicas": 1}
    base["workload"]["requests"] = 8000  # fewer do not settle at the rate that several GPUs carry
    base["slo"]["tpot"] = 0.05
    return Pair(base | {"replicas": int(draw.choice([4, 6]))}, [base], draw.uniform(0.85, 0.95))


KINDS: dict[str, Kind] = {
    "slots": Kind(_slots, ("slot_limit",), ("slots", "budget_and_slots")),
    "memory": Kind(_memory, ("kv_starvation",), ("memory_utilisation", "slot_cap")),
    "token_budget": Kind(_budget, ("token_budget",), ("token_budget", "budget_and_slots")),
    "budget_and_slots": Kind(_both, ("token_budget", "slot_limit"), ("budget_and_slots", "token_budget")),
    "order": Kind(_order, ("head_of_line",), ("order_by_prompt", "order_by_prediction", "prefill_cap")),
    "priority": Kind(_priority, ("priority",), ("priority", "order_by_deadline", "class_apart")),
    "routing": Kind(_routing, ("routing",), ("routing",)),
    "prefix_cache": Kind(_prefix, ("prefix_cache",), ("prefix_cache",)),
    "pd_ratio": Kind(_pools, ("pd_ratio",), ("pd_ratio", "merge")),
    "layout_too_wide": Kind(_too_wide, ("layout",), ("tensor_parallel", "pipeline_parallel")),
    "layout_too_narrow": Kind(_too_narrow, ("layout",), ("tensor_parallel", "pipeline_parallel")),
    "client_cap": Kind(_client_cap, ("client_cap",), ("client_cap",)),
    "quantisation": Kind(_bits, ("work",), ("quantisation",)),
    "hardware": Kind(_hardware, ("saturation",), ()),
}


def problem(cause: str, number: int) -> tuple[Mapping, Mapping]:
    """One problem, broken and sound. The first draw whose sound form keeps the SLO and whose broken form misses it."""
    for attempt in range(MOST_DRAWS):
        draw = np.random.default_rng([2028, zlib.crc32(cause.encode()), number, attempt])
        pair = KINDS[cause].make(draw)
        rate = _carried(pair.sound)
        if rate is None:
            continue
        sound = _at(pair.sound, pair.share * rate, number)
        if not _margin(sound) >= SOUND:
            continue
        for broken in pair.broken:
            made = _at(broken, pair.share * rate, number)
            if _runs(made) and _margin(made) <= BROKEN:
                return made, sound
    raise RuntimeError(f"{cause} {number}: no draw of {MOST_DRAWS} is a problem")


def _at(mapping: Mapping, rate: float, number: int) -> Mapping:
    workload = mapping["workload"]
    arrivals = {**workload["arrivals"], "rate": float(f"{rate:.4g}")}
    return {**mapping, "workload": {**workload, "arrivals": arrivals}, "run": {"seed": number}}


def _runs(mapping: Mapping) -> bool:
    try:
        prepare(from_mapping(mapping))
    except UserError:
        return False
    return True


def _margin(mapping: Mapping) -> float:
    """Share in time less what is asked, over a few runs."""
    trial = Trial(prepare(from_mapping(mapping)), CHECKED_RUNS)
    margins = trial.margins()[:CHECKED_RUNS]
    return sum(margins) / len(margins)


def _carried(mapping: Mapping) -> float | None:
    """Requests a second that one run of the sound deployment keeps the SLO at, to 5 %; None where there are none."""
    if not _runs(mapping):
        return None
    trial = Trial(prepare(from_mapping(mapping)), 1, same=False)
    loads = Loads(trial.prepared, trial.facts.objectives, 1.0, 1, 0)

    def holds(rate: float) -> bool:
        return loads.first(rate)["margin"] >= SOUND

    low, high = 0.25, 0.5
    if not holds(low):
        return None
    while holds(high):
        low, high = high, 2 * high
        if high > 1000:
            return None
    while high / low > 1.05:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Solved:
    """What advise said of a problem.

    first : the planted cause came first. inside : the promised interval holds the mean of fresh runs. kept : that mean
    keeps the SLO.
    """

    cause: str
    number: int
    named: str
    lever: str | None
    stack: tuple[str, ...]
    first: bool
    inside: bool | None
    kept: bool | None
    verdict: str
    cpu_s: float


def solve(cause: str, number: int) -> Solved:
    """Ask advise of one problem, and simulate what it advises under a seed of its own."""
    mapping, _ = problem(cause, number)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.yaml"
        path.write_text(yaml.safe_dump(mapping, sort_keys=False))
        started = time.process_time()
        told = advise(Bench(str(path)))
        cpu_s = time.process_time() - started
        fresh, promised = _fresh(str(path), told, number), (told["hardware"] or told["stack"] or {}).get("attainment")
    first = told["causes"][0] if told["causes"] else {"cause": "", "lever": None}
    inside = None if fresh is None or promised is None else promised["low"] <= fresh <= promised["high"]
    stack = told["stack"]["levers"] if told["stack"] else []
    asked = told["objectives"][0]["asked"]
    return Solved(
        cause, number, first["cause"], first["lever"], tuple(stack), first["cause"] in KINDS[cause].causes, inside,
        None if fresh is None else fresh >= asked, told["verdict"], cpu_s,
    )  # fmt: skip


def _fresh(path: str, told: Mapping, number: int) -> float | None:
    """The mean of what the advised deployment attains in fresh runs, as long as those of the advice."""
    sets = told["stack"]["sets"] if told["stack"] else {}
    length = [("workload.requests", told["requests"])]
    prepared = prepare(Bench(path, sets=(*sets.items(), *length)).scenario())
    left = told["hardware"]
    if left is not None and left["add_replicas"] and "replicas" in left["add_replicas"]:
        prepared = with_replicas(prepared, prepared.scenario.spec.replicas + left["add_replicas"]["replicas"])
    elif left is not None:
        return None
    found = Probe(OTHER_SEED + number).decide(prepared, fewest=FRESH_RUNS, most=FRESH_RUNS)
    return found.told()["mean"]


def main(numbers: range, causes: list[str]) -> None:
    """Print a line a problem, and a line a cause."""
    print(f"{'cause':<18}problem  {'named first':<15}{'lever':<19}{'stack':<31}promise  CPU s  verdict")
    for cause in causes:
        done = []
        for number in numbers:
            done.append(one := solve(cause, number))
            held = {True: "holds", False: "missed", None: "–"}[one.inside]
            print(
                f"{cause:<18}{number:>7}  {one.named:<15}{one.lever or '–':<19}{' + '.join(one.stack) or '–':<31}"
                f"{held:<7}{one.cpu_s:7.1f}  {one.verdict}",
                flush=True,
            )
        known, times = [one for one in done if one.inside is not None], [one.cpu_s for one in done]
        print(
            f"{cause}: named first in {sum(one.first for one in done)} of {len(done)}; the promise holds the fresh "
            f"mean in {sum(bool(one.inside) for one in known)} of {len(known)}, which keeps the SLO in "
            f"{sum(bool(one.kept) for one in known)}; CPU s: median {np.median(times):.1f}, most {max(times):.1f}",
            flush=True,
        )


def _numbers(asked: str) -> range:
    """ "10": problems 0 to 9; "4-9": these."""
    first, _, last = asked.rpartition("-")
    return range(int(first), int(last) + 1) if first else range(int(last))


if __name__ == "__main__":
    main(_numbers(sys.argv[1] if len(sys.argv) > 1 else "10"), sys.argv[2:] or list(KINDS))
