"""Kernels that PyTorch launches: its own, and those of vLLM, FlashInfer and flash-attn where they are installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from llmqsim.errors import UserError

from ..backend import CannotMeasure, DeviceLost, Variant
from .environment import Environment
from .windows import TorchPrepared

Calls = list[Callable[[], Any]]
"""one call for each set of buffers"""


@dataclass(frozen=True)
class Kernel:
    """A variant and what makes its calls for a shape."""

    variant: Variant
    build: Callable[[Environment, Mapping[str, Any]], Calls]


class TorchBackend:
    """A CUDA device, or the CPU, with every kernel that is installed."""

    def __init__(self, device: str, gpu: str | None = None, only: frozenset[str] = frozenset()):
        """`device` is 'cuda' or 'cpu', `gpu` overrules the name in the tables, `only` keeps these backends.

        Raises UserError when PyTorch is missing or sees no such device.
        """
        if find_spec("torch") is None:
            raise UserError(
                "PyTorch is not installed in this Python; run `llmqsim calibrate measure` in the environment of your "
                "serving engine, or `pip install torch` here (llmqsim itself does not need it)"
            )
        from . import attention, flashinfer, gemm, layer_ops, moe
        from .pool import Pool

        self._env = Environment(device, gpu)
        self._pool = Pool(self._env)
        self.device = self._env.device
        found: list[Kernel] = []
        for module in (gemm, attention, flashinfer, layer_ops, moe):
            found += module.kernels(self._env)
        found += self._pool.kernels()
        taken = {k.variant for k in found if k.variant.backend in only} if only else preferred(k.variant for k in found)
        self._kernels = {k.variant: k for k in found if k.variant in taken}
        self._backends = tuple(dict.fromkeys(k.variant.backend for k in found))

    def variants(self, table: str) -> tuple[Variant, ...]:
        """Kernels that can time the table here."""
        return tuple(variant for variant in self._kernels if variant.table == table)

    def backends(self) -> tuple[str, ...]:
        """Names of the backends there are kernels of here, chosen or not."""
        return self._backends

    def prepare(self, variant: Variant, shape: Mapping[str, Any]):
        """Buffers and calls for one shape. Raises CannotMeasure, or DeviceLost when CUDA has failed for good."""
        with translated_errors():
            if variant.table in ("collectives", "p2p"):
                return self._pool.prepare(variant, shape)
            return TorchPrepared(self._env, self._kernels[variant].build(self._env, shape))

    def versions(self) -> dict[str, str]:
        """Driver, CUDA, PyTorch and kernel library versions."""
        return self._env.versions()

    def conditions(self) -> dict[str, float | str]:
        """Clocks, power and temperature now."""
        return self._env.conditions()

    def warnings(self) -> list[str]:
        """What may spoil timings on this machine."""
        return self._env.warnings()

    def close(self) -> None:
        """End the worker processes of collectives."""
        self._pool.close()


PREFERENCE = ("vllm", "flashinfer", "flash_attn", "torch")
"""whose kernel counts where several backends have one, unless the user names backends"""


def preferred(variants: Iterable[Variant]) -> set[Variant]:
    """The variants of the most preferred backend for each table, dtype, KV dtype and operator."""
    best: dict[tuple, str] = {}
    everything = list(variants)
    for variant in everything:
        for what in _covers(variant):
            best[what] = min(best.get(what, variant.backend), variant.backend, key=_rank)
    return {v for v in everything if any(best[what] == v.backend for what in _covers(v))}


def _covers(variant: Variant) -> list[tuple]:
    return [(variant.table, variant.dtype, variant.kv_dtype, op) for op in variant.ops or ("",)]


def _rank(backend: str) -> int:
    return PREFERENCE.index(backend) if backend in PREFERENCE else len(PREFERENCE)


class translated_errors:  # noqa: N801 (reads as a phrase: `with translated_errors():`)
    """PyTorch's errors as the kit's: a device that has failed, or one shape that can't be measured."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is None or not isinstance(error, Exception) or isinstance(error, CannotMeasure | DeviceLost):
            return
        lines = str(error).strip().splitlines() or ["no reason given"]
        said = f"{type(error).__name__}: {lines[0]}"
        if "CUDA error" in str(error) and "out of memory" not in str(error):
            raise DeviceLost(said) from error
        # Any exception: these libraries change their functions between versions and raise what they like.
        raise CannotMeasure(said[:200]) from error
