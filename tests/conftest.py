"""Settings for all tests: property tests draw the same cases everywhere, and no clock decides whether they pass."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("llmqsim", deadline=None, derandomize=True)
settings.load_profile("llmqsim")
