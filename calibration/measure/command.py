"""`llmqsim calibrate measure`: checks the options, brings backend, plan and store together, tells what came of it."""

from __future__ import annotations

import math
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmqsim.errors import UserError, did_you_mean
from llmqsim.version import __version__

from . import plan, schema, tables
from .backend import Backend, DeviceLost
from .session import Outcome, Session
from .shapes import Deployments
from .store import Store
from .timer import Effort

GPU_EFFORT = Effort()
CPU_EFFORT = Effort(window_s=0.002, warm_up_s=0.002, repeats=3, most_repeats=5, most_calls=32)
NOISY = 0.1
LONGEST_MINUTES = 7 * 24 * 60.0
MOST_TP = 64


@dataclass(frozen=True)
class Options:
    """What the user asked for, as text; `parsed()` says all that is wrong with it at once."""

    out: str
    minutes: str = "30"
    models: Sequence[str] = ()
    """presets, Hugging Face ids or paths of a config.json"""
    tp: str = "1"
    tables: str = ""
    backends: str = ""
    device: str = "auto"
    gpu: str | None = None


@dataclass(frozen=True)
class Request:
    """Checked options."""

    out: Path
    seconds: float
    deployments: Deployments
    tables: tuple[str, ...]
    backends: tuple[str, ...]


def parsed(options: Options) -> Request:
    """Checked options. Raises UserError with every fault."""
    faults: list[str] = []
    minutes = _minutes(options.minutes, faults)
    chosen = _split(options.tables) or tuple(schema.TABLES)
    for table in chosen:
        if table not in schema.TABLES:
            known = f"{did_you_mean(table, schema.TABLES)} Known: {', '.join(schema.TABLES)}"
            faults.append(f"--tables: unknown table (got '{table}'){known}")
    sizes = _sizes(options.tp, faults)
    models = _models(options.models, sizes, faults)
    if options.device not in ("auto", "cuda", "cpu"):
        faults.append(f"--device: should be auto, cuda or cpu (got '{options.device}')")
    if options.gpu is not None and (not options.gpu.strip() or options.gpu == "cpu"):
        faults.append(f"--gpu: should be the name of a GPU such as H100-SXM-80GB (got '{options.gpu}')")
    if faults:
        raise UserError(*faults)
    what = Deployments(models, sizes)
    return Request(Path(options.out), minutes * 60, what, chosen, _split(options.backends))


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _minutes(text: str, faults: list[str]) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 <= minutes <= LONGEST_MINUTES:
        right = f"a number from 0 (only write the tables) to {LONGEST_MINUTES:.0f}"
        faults.append(f"--minutes: should be {right} (got '{text}')")
    return minutes


def _sizes(text: str, faults: list[str]) -> tuple[int, ...]:
    found = []
    for part in _split(text) or ("",):
        if not part.isdecimal() or not 1 <= int(part) <= MOST_TP:
            faults.append(f"--tp: should be tensor parallel sizes from 1 to {MOST_TP} such as 1,2,4 (got '{part}')")
        else:
            found.append(int(part))
    return tuple(found)


def _models(names: Sequence[str], sizes: Sequence[int], faults: list[str]) -> tuple:
    from llmqsim.hardware.hf_config import model_from_config
    from llmqsim.hardware.model import model

    found = []
    for name in names:
        try:
            # A preset may hold a slash, as Hugging Face ids do; a file is what ends in .json.
            found.append(model_from_config(Path(name)) if name.endswith(".json") else model(name))
        except UserError as error:
            faults += [f"--model: {fault}" for fault in error.faults]
            continue
        faults += [f"--tp: {fault}" for size in sizes if (fault := found[-1].tensor_parallel_fault(size))]
    return tuple(found)


def run(options: Options) -> int:
    """The whole command; returns the exit code. Raises UserError for what the user can mend."""
    request = parsed(options)
    store = Store(request.out)
    try:
        if request.seconds > 0:
            backend = _torch_backend(options, request)
            try:
                measure(request, backend, store, _tell)
            finally:
                backend.close()
        print(report(store))
    finally:
        store.close()
    return 0


def _torch_backend(options: Options, request: Request) -> Backend:
    from .torch_kernels import TorchBackend

    backend = TorchBackend(_device(options.device), options.gpu, frozenset(request.backends))
    if request.backends and (absent := sorted(set(request.backends) - set(backend.backends()))):
        known = ", ".join(backend.backends())
        raise UserError(f"--backends: no kernels here of {', '.join(absent)}; there are kernels of: {known}")
    return backend


def _device(name: str) -> str:
    from importlib.util import find_spec

    if name != "auto" or find_spec("torch") is None:
        return "cpu" if name == "cpu" else "cuda"
    import torch

    if not torch.cuda.is_available():
        _tell("no CUDA device: measuring on the CPU, which only tests the kit")
        return "cpu"
    return "cuda"


def measure(
    request: Request,
    backend: Backend,
    store: Store,
    tell: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Measure for `request.seconds`, then write the tables, also when the device fails or the user interrupts."""
    effort = CPU_EFFORT if backend.device.is_cpu else GPU_EFFORT
    warnings = backend.warnings()
    for warning in warnings:
        tell(f"mind: {warning}")
    store.note_session(_session(request, backend, warnings))
    store.flush({"time": _now(), **backend.conditions()})
    variants = {table: backend.variants(table) for table in request.tables}
    if not any(variants.values()):
        raise UserError(f"--tables: there is no kernel here for {', '.join(request.tables)}")
    for table, found in variants.items():
        tell(f"{table}: {', '.join(f'{v.kernel} ({v.dtype})' for v in found) or 'no kernel here, left out'}")
    session = Session(backend, store, effort, request.seconds, clock, tell)
    restore = _terminable()
    try:
        outcome = session.run(plan.tasks(variants, request.deployments, backend.device, effort))
    except DeviceLost as error:
        raise UserError(
            f"the device failed: {error}; what was measured is kept, and this shape won't be tried again: "
            "run the same command to go on"
        ) from None
    finally:
        restore()
        tables.write(store)
    tell(f"{outcome.ended}: {outcome.measured} rows measured, {outcome.known} were known")
    return outcome


def _session(request: Request, backend: Backend, warnings: list[str]) -> dict:
    what = request.deployments
    device = backend.device
    return {
        "started": _now(),
        "kit": f"llmqsim {__version__}",
        "gpu": device.gpu,
        "device": {"l2_bytes": device.l2_bytes, "free_memory_bytes": device.memory_bytes, "count": device.count},
        "versions": backend.versions(),
        "minutes": request.seconds / 60,
        "models": [model.name for model in what.models],
        "tensor_parallel_sizes": list(what.tensor_parallel_sizes),
        "tables": list(request.tables),
        "warnings": warnings,
    }


def _terminable() -> Callable[[], None]:
    """Let SIGTERM end a session as Ctrl-C does; returns what undoes it."""

    def interrupt(*_):
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread, where no handler can be set
        return lambda: None
    return lambda: signal.signal(signal.SIGTERM, before)


def report(store: Store) -> str:
    """Write the tables and say what is in them."""
    written = tables.write(store)
    if not written:
        return f"{store.folder}: nothing measured yet"
    lines = []
    for path in written:
        rows = [row for table, row in store.rows.values() if table == path.stem]
        spreads = [row["rep_spread"] for row in rows]
        noisy = sum(spread > NOISY for spread in spreads) / len(rows)
        middle = statistics.median(spreads)
        lines.append(f"{path}: {len(rows)} rows, spread {middle:.1%} in the median, above {NOISY:.0%} in {noisy:.0%}")
    if path.suffix == ".csv":
        lines.append(
            "CSV, as pyarrow is not installed here; `calibrate fit` reads Parquet: pip install pyarrow, "
            "then run this again with --minutes 0"
        )
    if store.failed:
        lines.append(f"{len(store.failed)} shapes could not be measured: see {store.folder / tables.RECORD}")
    if any(row["gpu"] != "cpu" for _, row in store.rows.values()):
        lines.append(f"next: llmqsim calibrate fit --kernels {store.folder}")
    return "\n".join(lines)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
