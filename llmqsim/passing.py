"""PassingTable: the requests of a very long run, of which only those under way take memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from llmqsim.packed import PIECE_ROWS, Memory
from llmqsim.requests import COLUMNS, INDEX, Outcome, RequestTable

PAGE_ROWS = 512
"""rows of a column on a page of memory: whole pages are given back"""


class PassingTable(RequestTable):
    """A streamed table whose rows are drawn shortly before they are due and given away when they are over.

    draw : (first, end) to a table of these rows, called with pieces in order. fold : takes a table of the next rows that
    are over, in order. The rows have one class and one tenant. Its columns must not be read as a whole.
    """

    def __init__(self, rows: int, draw: Callable[[int, int], RequestTable], fold: Callable[[RequestTable], None]):
        super().__init__(0)
        self._rows, self._filled, self._folded = rows, 0, 0
        self._draw, self._fold = draw, fold
        self._memory = Memory(len(COLUMNS), rows)
        self.data = self._memory.data

    @property
    def streamed(self) -> bool:
        """It is."""
        return True

    @property
    def gone(self) -> int:
        """Rows that are over and given away."""
        return self._folded

    def open_rows(self, end: int) -> None:
        """Draw the rows up to `end` and the one behind."""
        while self._filled < min(end + 1, self._rows):
            until = min(self._filled + PIECE_ROWS, self._rows)
            self.data[:, self._filled : until] = self._draw(self._filled, until).data
            self._filled = until
        self._opened = max(self._opened, end)

    def pack_finished(self) -> None:
        """Give away the opened rows up to the first that is unfinished."""
        unfinished = self.outcome_of(self._folded, self._opened) == Outcome.UNFINISHED
        end = self._folded + int(unfinished.argmax()) if unfinished.any() else self._opened
        self.pack(end // PAGE_ROWS * PAGE_ROWS)

    def pack(self, end: int) -> None:
        """Give away the rows up to `end`. They must not be touched any more."""
        while self._folded < end:
            first, until = self._folded, min(self._folded + PIECE_ROWS, end)
            self._fold(self.part(first, until))
            self._memory.give_back(first, until)
            self._folded = until

    def part(self, first: int, end: int) -> RequestTable:
        """The rows first:end as a table of their own, on the same memory."""
        part = RequestTable(0, self.classes, self.tenants)
        part._rows, part.data, part.targets = end - first, self.data[:, first:end], self.targets
        return part

    def close(self) -> None:
        """The run is over: all rows are."""
        self.open_rows(self._rows)
        self.pack(self._rows)
        del self.data, self._memory


def refused(table: RequestTable) -> np.ndarray:
    """Mask of the rows that are refused before they are sent, bool[rows]."""
    return table.data[INDEX["outcome"]] == Outcome.REJECTED
