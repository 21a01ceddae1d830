"""What the kit asks of whatever runs kernels: a device, kernels by family, and a prepared call that can be timed.

`torch_kernels` is the real one; tests bring a fake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .work import Peaks


class CannotMeasure(Exception):
    """This shape can't be timed with this kernel here (no memory, not supported): noted, and never tried again."""


class DeviceLost(Exception):
    """The device reported an error after which nothing can run in this process."""


@dataclass(frozen=True)
class Device:
    """Where kernels run."""

    gpu: str
    """name in the tables, such as 'H100-SXM-80GB'; 'cpu' when there is none"""
    l2_bytes: int
    memory_bytes: int
    """that a measurement may use"""
    count: int
    """devices that collectives may span"""
    is_cpu: bool = False
    peaks: Peaks | None = None
    """of the datasheet, where known"""


@dataclass(frozen=True)
class Variant:
    """One kernel that can time a family, under its table's labels."""

    table: str
    backend: str
    backend_version: str
    dtype: str
    kernel: str
    kv_dtype: str = "bfloat16"
    ops: tuple[str, ...] = ()
    """values of `op` that it can time; empty: all of the table"""

    def labels(self) -> dict[str, str]:
        """The columns of a row that this kernel decides."""
        own = {"backend": self.backend, "backend_version": self.backend_version}
        return own | {"dtype": self.dtype, "kernel": self.kernel}


class Prepared(Protocol):
    """One shape with its buffers, ready to run."""

    copies: int
    """sets of buffers that the calls go round, so that none is still in the cache when it comes up again"""
    how: str
    """'graph' or 'eager'"""

    def window(self, calls: int) -> Callable[[], float]:
        """A function that runs `calls` calls back to back and returns the seconds they took in all."""

    def close(self) -> None:
        """Give the buffers back."""


class Backend(Protocol):
    """A device with kernels."""

    device: Device

    def variants(self, table: str) -> tuple[Variant, ...]:
        """Kernels that can time the table here, in a fixed order."""

    def prepare(self, variant: Variant, shape: Mapping[str, Any]) -> Prepared:
        """Buffers and calls for one shape. Raises CannotMeasure."""

    def versions(self) -> dict[str, str]:
        """Driver, runtime and library versions."""

    def conditions(self) -> dict[str, float | str]:
        """Clocks, power, temperature at this moment; empty where they can't be read."""

    def warnings(self) -> list[str]:
        """What may spoil timings on this machine: other tenants, MIG, clocks that are not locked, a power limit."""

    def close(self) -> None:
        """End worker processes."""
