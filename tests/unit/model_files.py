"""What each file of ../shared/data/model_configs does. `python -m tests.unit.model_files` prints the table of docs/models.md."""

from __future__ import annotations

from pathlib import Path

from llmqsim.errors import ScenarioError
from llmqsim.hardware.hf_config import model_from_config
from llmqsim.hardware.model import Model

CONFIGS = Path(__file__).parents[3] / "shared" / "data" / "model_configs"


def layers(made: Model) -> str:
    """Kinds of layers in words."""
    if made.mixers:
        return ", ".join(
            f"{one.layers} {one.name}" + (f" of {one.window:,}" if one.window else "") for one in made.mixers
        )
    plain = "latent attention" if made.kv_lora_rank else "attention"
    if made.index_layers:
        plain += ", sparse"
    if not made.windowed_layers:
        return f"{made.layers} {plain}"
    full = made.layers - made.windowed_layers
    return f"{full} {plain}, {made.windowed_layers} with a window of {made.sliding_window:,}"


def table() -> list[str]:
    """Lines of the table."""
    lines = [
        "| file | parameters, billions (a token visits) | layers | weights | KV, bytes a token (16 bits) | said first |",
        "| --- | ---: | --- | --- | ---: | --- |",
    ]
    for path in sorted(CONFIGS.glob("*.json")):
        try:
            made = model_from_config(path)
        except ScenarioError as error:
            why = error.faults[0].removeprefix(f"{path}: ").partition("; the nearest")[0]
            lines.append(f"| {path.stem} | | refused: {why} | | | |")
            continue
        count = f"{made.parameters / 1e9:,.2f}"
        count += f" ({made.active_parameters / 1e9:,.2f})" if made.experts else ""
        stays = {name for name in ("attention", "linear", "state") if getattr(made, f"{name}_dtype")}
        types = made.weight_dtype + (f", 16 bits: {', '.join(sorted(stays))}" if stays else "")
        said = ", ".join(one.key for one in made.unmodelled)
        lines.append(f"| {path.stem} | {count} | {layers(made)} | {types} | {made.kv_bytes_per_token():,} | {said} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
