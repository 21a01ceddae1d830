"""Records: named, typed fields over words of the arena, for kernels and for plain Python.

    class Point(Record):
        x: int      # a word
        share: float
        sum: Whole  # a record within it
        four: Four  # a short list of words

    point_at = placed(Point)            # point_at(arena, place): the point whose first word is arena[place]
    point_in = listed(Point)            # point_in(arena, first, i): the i-th of points that begin there

In a kernel a record is a pointer into the arena, and a field an address known when the kernel is compiled; a misspelt one
does not compile. In plain Python (NUMBA_DISABLE_JIT=1, and whoever sets a run up) it is an object with a property for each
field. Two records are never the same to a kernel: compare their index or place. No variable may be either of two kinds.
"""

# Part of machine code: kernels reach what they know through this.
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, ClassVar, Self, TypeVar, get_args

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

WORD = 8
"""bytes"""
Four = Annotated[list[int], 4]
"""four words"""
Kind = TypeVar("Kind", bound="Record")


class Record:
    """A record in an arena. arena : int64[words]; at : place of its first word.

    words : how many it has; dtype : of one, for kernels.
    """

    __slots__ = ("_at", "_memory")
    words: ClassVar[int] = 0
    dtype: ClassVar[np.dtype]

    def __init__(self, arena: np.ndarray, at: int):
        self._memory, self._at = memoryview(arena), at

    def __init_subclass__(cls):
        known, offsets, formats = vars(sys.modules[cls.__module__]), [], []
        fields = cls.__dict__["__annotations__"]
        for name, told in fields.items():
            words, form, field = _field(known.get(told, told), cls.words)
            offsets.append(cls.words * WORD)
            formats.append(form)
            setattr(cls, name, field)
            cls.words += words
        told = {"names": [*fields], "formats": formats, "offsets": offsets, "itemsize": cls.words * WORD}
        cls.dtype = np.dtype(told, align=True)  # type: ignore[call-overload]

    @classmethod
    def of(cls, memory: memoryview, at: int) -> Self:
        """The record at a word of an arena's memory."""
        made = object.__new__(cls)
        made._memory, made._at = memory, at
        return made

    @classmethod
    def columns(cls, words: np.ndarray) -> dict[str, np.ndarray]:
        """Fields of many records at once: views of int64[records * words]. Fields of one word."""
        rows = words.reshape(-1, cls.words)
        return {name: rows[:, cls.place(name)] for name in cls.dtype.names}  # type: ignore[union-attr]

    @classmethod
    def place(cls, name: str) -> int:
        """How many words of a record come before a field."""
        return cls.dtype.fields[name][1] // WORD  # type: ignore[index]

    def set(self, **values: int | float) -> None:
        """Write fields by name."""
        for name, value in values.items():
            setattr(self, name, value)


def _field(told: object, at: int) -> tuple[int, object, property]:
    """(words, type of dtype, property) of a field that begins `at` words into its record."""
    if told == "int":
        return 1, np.int64, _word(at)
    if told == "float":
        return 1, np.float64, _number(at)
    if isinstance(told, type) and issubclass(told, Record):
        return told.words, told.dtype, _within(told, at)
    count = get_args(told)[1]
    return count, (np.int64, (count,)), _list(count, at)


def _word(at: int) -> property:
    def get(self: Record) -> int:
        return self._memory[self._at + at]

    def put(self: Record, value: int) -> None:
        self._memory[self._at + at] = int(value)

    return property(get, put)


def _number(at: int) -> property:
    def view(self: Record) -> memoryview:
        first = self._at + at
        return self._memory[first : first + 1].cast("B").cast("d")

    def get(self: Record) -> float:
        return view(self)[0]

    def put(self: Record, value: float) -> None:
        view(self)[0] = float(value)

    return property(get, put)


def _within(kind: type[Record], at: int) -> property:
    return property(lambda self: kind.of(self._memory, self._at + at))


def _list(count: int, at: int) -> property:
    return property(lambda self: self._memory[self._at + at : self._at + at + count])


def placed(kind: type[Kind]) -> Callable[[np.ndarray, int], Kind]:
    """What gives kernels the record at a place: f(arena, place)."""
    if numba.config.DISABLE_JIT:
        return kind

    @intrinsic
    def at(typingctx, arena, place):
        record = numba.from_dtype(kind.dtype)
        return record(arena, types.int64), _pointer(record)

    return at


def listed(kind: type[Kind]) -> Callable[[np.ndarray, int, int], Kind]:
    """What gives kernels a record of a list: f(arena, place of the first one, index)."""
    words = kind.words
    if numba.config.DISABLE_JIT:
        return lambda arena, first, index: kind(arena, first + index * words)

    @intrinsic
    def at(typingctx, arena, first, index):
        record = numba.from_dtype(kind.dtype)
        return record(arena, types.int64, types.int64), _pointer(record, words)

    return at


def _pointer(record, words: int = 0):
    """Code of the two above: an address, and nothing that a run would have to do."""

    def code(context, builder, signature, arguments):
        arena, place, *index = arguments
        data = context.make_array(signature.args[0])(context, builder, arena).data
        if index:
            place = builder.add(place, builder.mul(index[0], context.get_constant(types.int64, words)))
        return builder.bitcast(builder.gep(data, [place]), context.get_value_type(record))

    return code


def _erase(record: Record) -> None:
    """All words of a record become 0."""
    for word in range(record._at, record._at + record.words):
        record._memory[word] = 0


if numba.config.DISABLE_JIT:
    erase = _erase
else:

    @intrinsic
    def erase(typingctx, record):
        """All words of a record become 0."""

        def code(context, builder, signature, arguments):
            size = context.get_constant(types.intp, signature.args[0].size)
            cgutils.memset(builder, arguments[0], size, 0)
            return context.get_dummy_value()

        return types.void(record), code
