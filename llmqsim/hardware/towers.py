"""A vision or audio tower beside a language model: weights, and what it takes when a server starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tower:
    """patch_bytes : activations of one patch at the widest place of a layer. item_tokens : of the largest image."""

    name: str
    parameters: int
    patch_bytes: int = 0
    patches_per_token: float = 0.0
    item_tokens: int = 0

    def profile_bytes(self, token_budget: int) -> int:
        """Bytes of the start-up run, which encodes as many images as fit the token budget, and one at least."""
        return round(max(token_budget, self.item_tokens) * self.patches_per_token * self.patch_bytes)
