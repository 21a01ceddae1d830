"""Host times of the vLLM presets from open-loop runs, what they say of runs left out, and what each mechanism buys.

One Gauss-Newton step from the shipped values: residuals are the logarithms of predicted over measured mean TPOT and TTFT
of each inference-perf and blis-observe run (overload apart); derivatives by running each case with a parameter changed.
Left-out groups are predicted with the parameters of the others, by running them again.

    python calibration/serving/open_loop.py fit      --serving ../shared/data/serving
    python calibration/serving/open_loop.py ablation --serving ../shared/data/serving
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

from llmqsim.cost import lower, measured
from llmqsim.cost.families import FAMILIES
from llmqsim.cost.layer import Layer
from llmqsim.scenario.build import build_servers
from llmqsim.scenario.load import from_mapping
from llmqsim.validate.command import read
from llmqsim.validate.execute import execute, execute_all, wanted
from llmqsim.validate.runs import Run, plan

FAMILIES_USED = ("inference-perf-vllm", "blis-observe-vllm")
FITTED = ("per_step", "per_step_tp", "per_running", "per_mixed_layer", "request_after", "sampler", "sampler_per_logit")
STEP = 0.3
"""change of a parameter for its derivative, as a share"""
SHOWN = (("e2e", "mean"), ("e2e", "p99"), ("tpot", "mean"), ("ttft", "mean"), ("ttft", "p99"))
ABLATED = (
    "llama-2-7b-hf-tp1-codegen", "llama-2-7b-hf-tp1-general", "70b-hf-tp4-general", "70b-hf-tp4-roleplay-e7",
    "mixtral-8x7b-v01-tp2-general-e9", "mixtral-8x7b-v01-tp2-general-lite-e27", "34b-instruct-hf-tp2-general",
    "34b-instruct-hf-tp2-codegen-e2", "qwen3-14b-tp1-general-e13", "8b-instruct-tp1-general-e16",
    "8b-instruct-tp1-codegen-e18", "a100-llama", "a100-code", "nemo", "scout-17b-16e-instruct-fp8-dynamic-tp2-codegen",
    "rate-4rps", "asymrate-12rps",
)  # fmt: skip
"""parts of the ids of the runs in the ablation: each model, GPU and load once or twice"""
Figures = dict[tuple[str, str], float]


def runs_of(serving: Path) -> list[Run]:
    """The open-loop runs of both families, one a case."""
    cases = read([serving / "cases.yaml"], serving / "requests")
    kept = [c for c in cases if c.family in FAMILIES_USED and c.regime == "open_loop"]
    return [run for case in kept for run in plan(case) if isinstance(run, Run)]


def with_engine(run: Run, options: Mapping) -> Run:
    """The same run with other engine options; `host` is merged."""
    engine = {**run.scenario["engine"], **options}
    engine["host"] = {**run.scenario["engine"].get("host", {}), **options.get("host", {})}
    return replace(run, scenario={**run.scenario, "engine": engine})


def error_ratios(run: Run, outcome) -> Figures:
    """Predicted over measured of the whole run, by metric and stat."""
    if outcome.error:
        raise SystemExit(f"{run.case.id}: {outcome.error}")
    entry = next(i for i in run.entries if run.case.entries[i].get("stage") == "all")
    figures = wanted(run)[entry]
    return {
        (f.metric, f.stat): value / f.measured
        for f, value in zip(figures, outcome.values[entry], strict=True)
        if value and f.measured
    }


def all_ratios(runs: Sequence[Run], workers: int | None) -> list[Figures]:
    """`error_ratios` of every run."""
    return [error_ratios(run, o) for run, o in zip(runs, execute_all(runs, workers), strict=True)]


def host_of(run: Run) -> dict[str, float]:
    """The host times that a run's preset has, seconds."""
    host = build_servers(from_mapping({**run.scenario, "workload": DUMMY})).deployment.host
    return {name: getattr(host, f"{name}_s") for name in FITTED}


DUMMY = {"requests": 1, "arrivals": {"process": "burst"}, "lengths": {"prompt": 1, "output": 1}}


def residuals(ratios: Sequence[Figures]) -> np.ndarray:
    """Logarithms of mean TPOT, then of mean TTFT, run by run."""
    return np.log([[r["tpot", "mean"], r["ttft", "mean"]] for r in ratios]).ravel()


def derivatives(runs: Sequence[Run], base: np.ndarray, hosts: Sequence[Mapping], workers: int | None) -> np.ndarray:
    """Of the residuals by the logarithm of each parameter; nothing where a run has none of it."""
    columns = []
    for name in FITTED:
        moved = [with_engine(r, {"host": {name: h[name] * (1 + STEP)}}) for r, h in zip(runs, hosts, strict=True)]
        columns.append((residuals(all_ratios(moved, workers)) - base) / STEP)
        print(f"{name}: done", file=sys.stderr)
    return np.array(columns).T


def solved(jacobian: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(change, its standard error) of each parameter as a share, by least squares with a weak pull to the old values.

    The pull (a standard deviation of 50 %) keeps parameters where a group left out was the only one to identify them.
    """
    pull = np.eye(len(FITTED)) * residual_sd(base) / 0.5
    normal = jacobian.T @ jacobian + pull.T @ pull
    change = np.linalg.solve(normal, -jacobian.T @ base)
    left = base + jacobian @ change
    variance = float(left @ left) / max(1, len(left) - len(FITTED))
    return change, np.sqrt(np.diag(np.linalg.inv(normal)) * variance)


def residual_sd(base: np.ndarray) -> float:
    """Spread of the residuals."""
    return float(np.std(base))


def load_label(run: Run) -> str:
    """The kind of load: high and low rates of one workload apart."""
    if run.case.family == "blis-observe-vllm":
        return "no prefix in common (blis)"
    for word in ("general-lite", "reasoning-lite", "general", "codegen", "roleplay"):
        if word in run.case.id:
            return word
    return "other"


GROUPS = {"GPU": lambda run: run.case.gpu, "model": lambda run: run.case.model.split("/")[-1], "regime": load_label}


def fit(serving: Path, workers: int | None) -> None:
    """Print the fit, and the errors in sample and with each GPU, model and regime left out."""
    runs = runs_of(serving)
    hosts = [host_of(run) for run in runs]
    shipped = all_ratios(runs, workers)
    base = residuals(shipped)
    jacobian = derivatives(runs, base, hosts, workers)
    change, error = solved(jacobian, base)
    print(f"{len(runs)} runs, {len(base)} residuals\n")
    print("| parameter | shipped | refitted | standard error |\n| --- | --- | --- | --- |")
    for i, name in enumerate(FITTED):
        value = max(host[name] for host in hosts)
        print(f"| {name} | {value:.3g} s | {value * (1 + change[i]):.3g} s | {value * error[i]:.2g} s |")
    print("\n| set | runs | " + " | ".join(f"{metric} {stat}" for metric, stat in SHOWN) + " |")
    print("| --- " * (2 + len(SHOWN)) + "|")
    print(line("shipped values, all", shipped))
    print(line("refitted, in sample", changed(runs, hosts, change, workers)))
    for kind, label in GROUPS.items():
        together: list[Figures] = []
        for name, out in grouped(runs, label).items():
            kept = np.array([i not in out for i in range(len(runs))]).repeat(2)
            moved, _ = solved(jacobian[kept], base[kept])
            found = changed([runs[i] for i in out], [hosts[i] for i in out], moved, workers)
            together += found
            print(line(f"without {kind} {name}", found))
        print(line(f"**each {kind} left out once**", together))


def grouped(runs: Sequence[Run], label) -> dict[str, list[int]]:
    """Places of the runs by group."""
    groups: dict[str, list[int]] = defaultdict(list)
    for i, run in enumerate(runs):
        groups[label(run)].append(i)
    return dict(sorted(groups.items()))


def changed(runs: Sequence[Run], hosts: Sequence[Mapping], change: np.ndarray, workers: int | None) -> list[Figures]:
    """Ratios with every parameter changed by a share, never below zero."""
    factors = np.maximum(1 + change, 0.0)
    values = [{name: host[name] * float(f) for name, f in zip(FITTED, factors, strict=True)} for host in hosts]
    return all_ratios([with_engine(run, {"host": v}) for run, v in zip(runs, values, strict=True)], workers)


def line(name: str, ratios: Sequence[Figures]) -> str:
    """A row of mean / median absolute percentage errors."""
    cells = []
    for key in SHOWN:
        errors = [100 * abs(r[key] - 1) for r in ratios if key in r]
        cells.append(f"{cell(np.mean(errors))} / {cell(np.median(errors))}" if errors else "–")
    return f"| {name} | {len(ratios)} | " + " | ".join(cells) + " |"


def cell(percent: float) -> str:
    """A percentage; beyond 999 the queue has diverged."""
    return f"{percent:.1f}" if percent < 999 else "diverges"


NO_HOST = {name: 0.0 for name in (*FITTED, "request_before", "cold_step")}
BARE = {"enable_prefix_caching": False, "async_scheduling": False, "sampler": "plain", "host": NO_HOST}
LATER = (
    ("+ prefix cache", {"enable_prefix_caching": None}, ()),
    ("+ asynchronous scheduling", {"async_scheduling": None}, ()),
    ("+ a request's way in and out", {}, ("request_before", "request_after")),
    ("+ host time of a step", {}, ("per_step", "per_step_tp")),
    ("+ of a running request, of a mixed step", {}, ("per_running", "per_mixed_layer")),
    ("+ sampler", {"sampler": None}, ("sampler", "sampler_per_logit")),
)
"""rows of the ablation by engine options and host times that come back"""


def ablation(serving: Path) -> None:
    """Print what each mechanism buys, each row adding to the one above; nothing is refitted."""
    runs = [run for run in runs_of(serving) if any(part in run.case.id for part in ABLATED)]
    print("| step | runs | " + " | ".join(f"{metric} {stat}" for metric, stat in SHOWN) + " |")
    print("| --- " * (2 + len(SHOWN)) + "|")
    off = {"derate": True, "experts": True, "common": True}
    options, host = dict(BARE), dict(NO_HOST)
    row("datasheet roofline, synchronous, nothing else", runs, {**options, "host": host}, kernels="datasheet", **off)
    row("fitted constants instead", runs, {**options, "host": host}, kernels="constants", **off)
    row("+ residual tables", runs, {**options, "host": host}, **off)
    for name, back, times in LATER:
        options = {key: value for key, value in options.items() if key not in back}
        host = {key: value for key, value in host.items() if key not in times}
        row(name, runs, {**options, "host": host}, **off)
    for name, key in (("+ slow-down under load", "derate"), ("+ expected active experts", "experts")):
        off[key] = False
        row(name, runs, {**options, "host": host}, **off)
    row("+ common blocks read once", runs, {**options, "host": host})
    row("+ cold start of 16-bit experts: as shipped", runs, {})


def row(name: str, runs: Sequence[Run], options: Mapping, kernels: str = "", **off: bool) -> None:
    """Run all and print one row. off : mechanisms that are left out."""
    with without(kernels, **off):
        found = [error_ratios(run, execute(with_engine(run, options))) for run in runs]
    print(line(name, found), flush=True)


@contextmanager
def without(kernels: str = "", derate: bool = False, experts: bool = False, common: bool = False) -> Iterator[None]:
    """Leave mechanisms of the step cost out. kernels : 'datasheet' or 'constants' instead of the tables."""
    with ExitStack() as stack:
        if kernels:
            seconds = bare_kernels(kernels == "datasheet")
            stack.enter_context(mock.patch.object(measured.Measured, "seconds", seconds))
        if derate:
            stack.enter_context(mock.patch.object(Layer, "derate", lambda self, tokens: np.ones(np.shape(tokens))))
        if experts:
            real = measured.active_experts
            balanced = lambda tokens, topk, count, balanced=True: real(tokens, topk, count)  # noqa: E731
            stack.enter_context(mock.patch.object(measured, "active_experts", balanced))
        if common:
            stack.enter_context(mock.patch.object(lower, "CACHED_READ_PERCENT", 100))
        yield


def bare_kernels(datasheet: bool):
    """`Measured.seconds` without its table: the physical form, or the roofline at published peaks."""

    def seconds(self, family, key, shape, dtype="bfloat16"):
        own, config = FAMILIES[family], self._wanted(family, key, dtype)
        fitted = self.store.find(family, config)
        self.used.setdefault(family, fitted)
        arrays = np.broadcast_arrays(*(np.asarray(values, dtype=np.float64) for values in shape.values()))
        columns = own.columns(config, {name: values.ravel() for name, values in zip(shape, arrays)})
        form = own.form(fitted.config)
        if datasheet:
            found = form.at_datasheet(columns, self._machine, dtype)
        else:
            found = form.seconds(fitted.constants, columns, self._machine, dtype)
        return np.asarray(found).reshape(arrays[0].shape)

    return seconds


def main() -> None:
    """Arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["fit", "ablation"])
    parser.add_argument("--serving", type=Path, required=True)
    parser.add_argument("--workers", type=int)
    arguments = parser.parse_args()
    if arguments.what == "fit":
        fit(arguments.serving, arguments.workers)
    else:
        ablation(arguments.serving)


if __name__ == "__main__":
    main()
