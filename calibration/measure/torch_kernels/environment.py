"""The device as PyTorch and the driver see it: name, caches, versions, clocks, and who else is on it."""

from __future__ import annotations

import math
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from llmqsim.errors import UserError
from llmqsim.hardware.gpu import gpu as gpu_preset

from ..backend import Device
from ..work import Peaks

TABLE_NAMES = {
    "NVIDIA A100-SXM4-40GB": "A100-SXM-40GB",
    "NVIDIA A100-SXM4-80GB": "A100-SXM-80GB",
    "NVIDIA A40": "A40-48GB",
    "NVIDIA H100 80GB HBM3": "H100-SXM-80GB",
    "NVIDIA H200": "H200-SXM-141GB",
    "NVIDIA L40S": "L40S-48GB",
}
"""PyTorch's device name to the name in the published tables"""
CPU_L2_BYTES = 4 * 2**20
CPU_MEMORY_BYTES = 2**30
CPU_PROCESSES = 2
PAST_CACHE = 3
"""buffers together are so many times the L2 cache"""
MOST_COPIES = 256
SHARE_FOR_COPIES = 0.5
LIBRARIES = ("torch", "triton", "vllm", "flashinfer-python", "flash-attn", "nvidia-cublas-cu12", "nvidia-nccl-cu12",
             "nvidia-cublas", "nvidia-nccl-cu13")  # fmt: skip
QUERY = {
    "clocks.sm": "sm_mhz",
    "clocks.mem": "memory_mhz",
    "clocks.max.sm": "most_sm_mhz",
    "power.draw": "power_w",
    "power.limit": "power_limit_w",
    "power.max_limit": "most_power_limit_w",
    "temperature.gpu": "temperature_c",
    "clocks_throttle_reasons.active": "throttle_reasons",
    "utilization.gpu": "busy_percent",
    "mig.mode.current": "mig",
    "persistence_mode": "persistence",
}
"""nvidia-smi's field to the name in measured.json"""


class Environment:
    """One CUDA device (the current one) or the CPU, and random buffers on it."""

    def __init__(self, kind: str, gpu: str | None = None):
        """`kind` is 'cuda' or 'cpu'. Raises UserError when PyTorch sees no CUDA device."""
        import torch

        self.torch, self.is_cpu = torch, kind == "cpu"
        if not self.is_cpu and not torch.cuda.is_available():
            raise UserError(
                f"PyTorch {torch.__version__} sees no CUDA device; check the driver and CUDA_VISIBLE_DEVICES, "
                "or test the kit with --device cpu (its timings say nothing about a GPU)"
            )
        self.place = torch.device(kind)
        self.capability = (0, 0) if self.is_cpu else torch.cuda.get_device_capability()
        cpu = Device("cpu", CPU_L2_BYTES, CPU_MEMORY_BYTES, CPU_PROCESSES, is_cpu=True)
        self.device = cpu if self.is_cpu else self._cuda(gpu)
        torch.manual_seed(0)
        torch.set_grad_enabled(False)

    def _cuda(self, gpu: str | None) -> Device:
        properties = self.torch.cuda.get_device_properties(0)
        name = TABLE_NAMES.get(properties.name, properties.name.removeprefix("NVIDIA ").replace(" ", "-"))
        free, _ = self.torch.cuda.mem_get_info()
        l2 = getattr(properties, "L2_cache_size", 0) or 64 * 2**20
        return Device(gpu or name, l2, free, self.torch.cuda.device_count(), peaks=datasheet(gpu or name))

    @property
    def engine(self) -> tuple[str, str]:
        """(backend, version) for PyTorch's own kernels: vLLM's where it is installed, as it calls the very same."""
        found = None if self.is_cpu else installed("vllm")
        return ("vllm", found) if found else ("torch", self.torch.__version__)

    def normal(self, *size: int, dtype: str = "bfloat16"):
        """Normal random values: easy data (zeros, constants) draws less power, and then clocks are higher."""
        wide = getattr(self.torch, "bfloat16" if dtype.startswith("fp8") else dtype)
        values = self.torch.randn(size, dtype=wide, device=self.place)
        return values.to(self.torch.float8_e4m3fn) if dtype.startswith("fp8") else values

    def integers(self, values: Sequence[int]):
        """An int32 tensor."""
        return self.torch.tensor(values, dtype=self.torch.int32, device=self.place)

    def shuffled(self, count: int):
        """A random order of 0 .. count - 1, int32: pages of a KV cache that has been used for a while."""
        return self.torch.randperm(count, device=self.place).to(self.torch.int32)

    def copies(self, cold_bytes: float) -> int:
        """Sets of buffers so that what must come from memory isn't in the cache when it comes up again."""
        if cold_bytes <= 0:
            return 1
        wanted = math.ceil(PAST_CACHE * self.device.l2_bytes / cold_bytes) + 1
        room = int(SHARE_FOR_COPIES * self.device.memory_bytes / cold_bytes)
        return max(1, min(wanted, MOST_COPIES, room))

    def versions(self) -> dict[str, str]:
        """Driver, CUDA, Python and library versions."""
        torch = self.torch
        found = {name: text for name in LIBRARIES if (text := installed(name))}
        found |= {"python": platform.python_version(), "system": platform.platform()}
        if self.is_cpu:
            found["processor"] = platform.processor() or platform.machine()
            return found | {"threads": str(torch.get_num_threads())}
        driver = _smi(["--query-gpu=driver_version,vbios_version,name"])
        found |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
        return found | {"device": torch.cuda.get_device_name(), "driver": driver[0] if driver else "unknown"}

    def conditions(self) -> dict[str, float | str]:
        """Clocks, power and temperature now; empty on a CPU or without nvidia-smi."""
        fields = () if self.is_cpu else known_fields()
        lines = _smi([f"--query-gpu={','.join(fields)}"]) if fields else []
        if not lines:
            return {}
        return {QUERY[field]: _number(text) for field, text in zip(fields, lines[0].split(","), strict=False)}

    def warnings(self) -> list[str]:
        """What may spoil timings here, as sentences."""
        if self.is_cpu:
            return ["device=cpu: these timings test the kit; no GPU can be calibrated with them"]
        now = self.conditions()
        if not now:
            return ["nvidia-smi is not there: clocks, power and other tenants can't be recorded"]
        found = []
        if now.get("mig") == "Enabled":
            found.append("MIG is on: this is a slice of a GPU, and its timings hold for such a slice only")
        limit, most = _as_float(now.get("power_limit_w")), _as_float(now.get("most_power_limit_w"))
        if limit < most:
            found.append(f"the power limit is {limit:g} W of {most:g} W")
        if (busy := _as_float(now.get("busy_percent"))) > 5:
            found.append(f"the GPU is {busy:g} % busy before anything was measured: someone else is on it")
        if len(_smi(["--query-compute-apps=pid"])) > 1:
            found.append("other processes hold the GPU: their work and ours disturb each other")
        return found


def datasheet(name: str) -> Peaks | None:
    """Datasheet peaks of a GPU that llmqsim has a preset for, else None."""
    try:
        card = gpu_preset(name)
    except UserError:
        return None
    return Peaks(dict(card.flops_per_s), card.memory_bandwidth_bytes_per_s)


@lru_cache(maxsize=1)
def known_fields() -> tuple[str, ...]:
    """Fields of QUERY that this driver knows: one unknown field would spoil the whole query."""
    if _smi([f"--query-gpu={','.join(QUERY)}"]):
        return tuple(QUERY)
    return tuple(field for field in QUERY if _smi([f"--query-gpu={field}"]))


def installed(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _smi(arguments: list[str]) -> list[str]:
    """Lines of nvidia-smi for the first visible device; none when it isn't there or fails."""
    if not shutil.which("nvidia-smi"):
        return []
    command = ["nvidia-smi", *_visible(), *arguments, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def _visible() -> list[str]:
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
    return ["-i", first]


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text.strip()


def _as_float(value: Any) -> float:
    return value if isinstance(value, float) else 0.0
