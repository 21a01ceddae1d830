"""Stations: a service model without an engine, for cases with closed forms. See cluster/stations.py for the replica."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stations:
    """Prompts pass a station one at a time; an answer then takes its own time, whatever others do. Times in seconds."""

    prefill_s: float = 0.0
    prefill_per_token_s: float = 0.0
    decode_s: float = 0.0
    """first token to last, of answers with two tokens or more"""
    decode_per_token_s: float = 0.0
    """added per output token after the first"""
    provenance: tuple[str, ...] = ("stations, from the scenario",)
    box: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def prefill_ns(self, prompt_tokens: int) -> int:
        """Time of one prompt in the station, ns >= 1."""
        return max(1, round((self.prefill_s + self.prefill_per_token_s * prompt_tokens) * 1e9))

    def decode_ns(self, output_tokens: int) -> int:
        """First token to last, ns; 0 for one token."""
        if output_tokens < 2:
            return 0
        return round((self.decode_s + self.decode_per_token_s * (output_tokens - 1)) * 1e9)
