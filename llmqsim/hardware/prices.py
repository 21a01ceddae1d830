"""What a GPU costs an hour: a preset with its date, to be overridden by the reader's own price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llmqsim.errors import UserError
from llmqsim.hardware.data import read_preset
from llmqsim.hardware.gpu import gpu


@dataclass(frozen=True)
class Price:
    """US dollars for one GPU and hour, and where that is from."""

    usd_per_gpu_hour: float
    source: str


def price(name: str, own: Mapping[str, float] | None = None) -> Price | None:
    """The price of a GPU preset; None for one without. own : preset name to the reader's price."""
    if own and name in own:
        return Price(own[name], "given")
    data = read_preset("prices.yaml")
    known = data["usd_per_gpu_hour"].get(name)
    return None if known is None else Price(known, f"{data['source']} ({data['date']})")


def parse_prices(texts: list[str]) -> dict[str, float]:
    """Prices written as GPU=DOLLARS. Raises UserError."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            dollars = float(value.strip().lstrip("$"))
        except ValueError:
            dollars = -1.0
        if not equals or not 0 < dollars < 1e6:
            raise UserError(f"--price: must be GPU=DOLLARS (got '{text}'); such as --price h100-sxm=2.49")
        found[gpu(name.strip()).name] = dollars
    return found
