"""Columns of whole numbers in few bytes: what a long run keeps of the rows that are over.

`allocate` gives an array whose memory can be given back piece by piece; `Packed` holds the columns of rows that are over,
each piece in the narrowest integers that hold it. Nothing is lost: a column comes back as it was.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping

import numpy as np

PIECE_ROWS = 1 << 18
"""rows that are packed at a time"""
READ_LAST = 3
"""columns that stay unpacked after they were read: figures read the same few again and again"""
WORD = 8


class Memory:
    """int64[columns, rows] of zeros that take no memory before they are written, and none after `give_back`."""

    def __init__(self, columns: int, rows: int):
        self._map = None
        if rows and hasattr(mmap, "MADV_DONTNEED"):
            self._map = mmap.mmap(-1, columns * rows * WORD, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.data = np.frombuffer(self._map, dtype=np.int64).reshape(columns, rows)
        else:
            self.data = np.zeros((columns, rows), dtype=np.int64)

    def give_back(self, first: int, end: int) -> None:
        """Rows first:end are not needed any more; they read as zeros from now, or (elsewhere than on Linux) stay."""
        if self._map is None:
            return
        columns, rows = self.data.shape
        for column in range(columns):
            start, stop = (column * rows + first) * WORD, (column * rows + end) * WORD
            start, stop = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
            if stop > start:
                self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)


class Packed:
    """Columns of rows that are over. relative : column to another one (not relative itself) that it lies close to."""

    def __init__(self, columns: int, relative: Mapping[int, int]):
        self._pieces: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(columns)]
        self._relative = relative
        self._read: dict[int, np.ndarray] = {}
        self.rows = 0

    def add(self, data: np.ndarray) -> None:
        """The next rows, int64[columns, rows]."""
        for column, values in enumerate(data):
            if column in self._relative:
                values = values - data[self._relative[column]]
            self._pieces[column].append(_narrow(values))
        self.rows += data.shape[1]
        self._read.clear()

    def column(self, column: int) -> np.ndarray:
        """A column as it was, int64[rows], not to be written to."""
        if column not in self._read:
            values = self._whole(column)
            values.flags.writeable = False
            while len(self._read) >= READ_LAST:
                self._read.pop(next(iter(self._read)))
            self._read[column] = values
        else:
            self._read[column] = self._read.pop(column)  # the last one read is the last one dropped
        return self._read[column]

    def _whole(self, column: int) -> np.ndarray:
        near = self._pieces[self._relative[column]] if column in self._relative else None
        values, end = np.empty(self.rows, dtype=np.int64), 0
        for number, (lowest, offsets) in enumerate(self._pieces[column]):
            first, end = end, end + len(offsets)
            values[first:end] = offsets
            if near is not None:
                values[first:end] += near[number][1]
                lowest += near[number][0]
            if lowest:
                values[first:end] += lowest
        return values

    @property
    def nbytes(self) -> int:
        """Bytes that the columns take."""
        return sum(offsets.nbytes if offsets.strides[0] else 0 for own in self._pieces for _, offsets in own)


def _narrow(values: np.ndarray) -> tuple[int, np.ndarray]:
    """The lowest value, and how far each is above it, in as few bytes as hold that."""
    lowest, highest = int(values.min()), int(values.max())
    if lowest == highest:
        return lowest, np.broadcast_to(np.uint8(0), len(values))
    for kind in (np.uint8, np.uint16, np.uint32):
        if highest - lowest <= np.iinfo(kind).max:
            return lowest, (values - lowest).astype(kind)
    return 0, values.copy()
