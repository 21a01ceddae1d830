"""`llmqsim calibrate measure`: its options, and finding the measuring kit, which is no part of the package.

The kit lives in calibration/ of a checkout. pip copies it to share/llmqsim/calibration of the environment, so that it
is also there where only pip has been. It is loaded as a top-level package of its own; the package never imports it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from llmqsim.errors import UserError

KIT = "llmqsim_measure"
"""name under which the measuring kit is loaded, which is no part of the package"""


def add_measure(actions: argparse._SubParsersAction) -> None:
    """Add `measure` to the actions of `llmqsim calibrate`."""
    measure = actions.add_parser("measure", help="time kernels on the GPU of this machine (needs PyTorch)")
    measure.add_argument("--out", required=True, metavar="FOLDER", help="where rows go; the same folder resumes")
    measure.add_argument("--minutes", default="30", metavar="N", help="budget, 30 by default; 0 only writes the tables")
    measure.add_argument(
        "--model", action="append", default=[], metavar="M", help="shapes of this preset or config.json (repeatable)"
    )
    measure.add_argument("--tp", default="1", metavar="N,N", help="tensor parallel sizes of the models' shapes")
    measure.add_argument("--tables", default="", metavar="T,T", help="only these, e.g. gemm,attention_decode")
    measure.add_argument("--backends", default="", metavar="B,B", help="only kernels of these, e.g. vllm,flashinfer")
    measure.add_argument("--device", default="auto", metavar="D", help="auto, cuda or cpu (only tests the kit)")
    measure.add_argument("--gpu", metavar="NAME", help="name in the tables instead of the driver's")
    measure.set_defaults(command=_measure)


def _measure(arguments: argparse.Namespace) -> int:
    command = load_kit("command")
    return command.run(
        command.Options(
            out=arguments.out,
            minutes=arguments.minutes,
            models=tuple(arguments.model),
            tp=arguments.tp,
            tables=arguments.tables,
            backends=arguments.backends,
            device=arguments.device,
            gpu=arguments.gpu,
        )
    )


def load_kit(module: str) -> ModuleType:
    """A module of the measuring kit, from the checkout or from where pip put it. Raises UserError without a kit."""
    if KIT not in sys.modules:
        folder = next((place for place in kit_places() if (place / "__init__.py").is_file()), None)
        if folder is None:
            raise UserError(
                f"calibrate measure: the measuring kit is not here; looked in {' and '.join(map(str, kit_places()))}; "
                "install llmqsim with pip, or run it from a checkout"
            )
        inside = [str(folder)]
        spec = importlib.util.spec_from_file_location(KIT, folder / "__init__.py", submodule_search_locations=inside)
        kit = importlib.util.module_from_spec(spec)
        sys.modules[KIT] = kit
        spec.loader.exec_module(kit)
    return importlib.import_module(f"{KIT}.{module}")


def kit_places() -> tuple[Path, Path]:
    """Where the kit may lie: beside the package in a checkout, in the data folder of an installation."""
    checkout = Path(__file__).resolve().parent.parent / "calibration" / "measure"
    return checkout, Path(sysconfig.get_path("data")) / "share" / "llmqsim" / "calibration" / "measure"
