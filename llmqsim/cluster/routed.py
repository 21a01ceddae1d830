"""A request as router and admission see it: policies.protocol.RoutedRequest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llmqsim.requests import UNSET, RequestTable


class Routed:
    """One arriving request; what it will answer is not here."""

    __slots__ = ("_prefixes", "class_name", "draws", "due_ns", "max_tokens", "predicted_tokens", "priority", "prompt_tokens", "row", "tenant_id")  # fmt: skip

    def __init__(self, table: RequestTable, row: int, draws: np.ndarray | None):
        self.row = row
        self.prompt_tokens = int(table.prompt_tokens[row])
        self.max_tokens = int(table.max_tokens[row])
        self.class_name = table.classes[table.class_id[row]]
        self.tenant_id = int(table.tenant_id[row])
        self.priority = int(table.priority[row])
        self.predicted_tokens = int(table.predicted_tokens[row])
        after_ns = int(table.deadline_ns[row])
        self.due_ns = UNSET if after_ns == UNSET else int(table.arrival_ns[row]) + after_ns
        self.draws: Sequence[float] = () if draws is None else draws[row].tolist()
        self._prefixes = table.prefixes

    @property
    def prefix_blocks(self) -> list[int]:
        """Hashes of the prompt's leading blocks that others may share."""
        return [] if self._prefixes is None else self._prefixes.row(self.row)
