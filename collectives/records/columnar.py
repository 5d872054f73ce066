"""Rows kept as columns: one array a field, in the smallest type that holds its numbers.

Two million messages as objects take gigabytes, as columns less than 100 MB. A column is read as int64, float64 or bool,
whatever it is kept in, so that arithmetic on it cannot overflow. Rows are made when they are asked for.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)
Row = TypeVar("Row", bound=tuple[Any, ...])
AT_ONCE = 1 << 14  # rows made at once while iterating


class Column(Generic[Number]):
    """A field of a class of columns; on its objects it reads as an array with one entry a row."""

    def __init__(self, kind: type[Number]) -> None:
        self.kind = kind
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, rows: "Columnar[Any]", owner: type) -> npt.NDArray[Number]:
        kept: npt.NDArray[Number] = rows.kept[self.name].astype(self.kind, copy=False)
        return kept


class Columnar(ABC, Generic[Row]):
    """Rows of one kind as columns, one a ``Column`` of the class; rows never change."""

    COLUMNS: ClassVar[dict[str, type[np.generic]]]  # what numbers each column has

    def __init_subclass__(cls) -> None:
        found = ((name, value.kind) for name, value in vars(cls).items() if isinstance(value, Column))
        cls.COLUMNS = dict(found)

    def __init__(self, columns: dict[str, npt.ArrayLike]) -> None:
        """Keep columns of one length; one of them may be a number instead, which is then that of all rows."""
        lengths = (np.size(column) for column in columns.values() if np.ndim(column))
        self._number = number = next(lengths, 1)
        self.kept = {name: _pack(columns[name], kind, number) for name, kind in self.COLUMNS.items()}

    @abstractmethod
    def _make_rows(self, columns: dict[str, list[Any]]) -> Iterator[Row]:
        """Yield the rows that these columns, as lists, are of."""

    @classmethod
    @abstractmethod
    def from_plain(cls, plain: object) -> Self:
        """Return the rows that were written to a file. Raise ValueError that says what is wrong with it."""

    @abstractmethod
    def select(self, which: npt.NDArray[Any] | slice) -> Self:
        """Return some rows: by index, by a slice, or where an array of bool says so."""

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Row]:
        for first in range(0, self._number, AT_ONCE):
            yield from self._make_rows(self._lists(slice(first, first + AT_ONCE)))

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Row | Self:
        if isinstance(index, slice):
            return self.select(index)
        at = range(self._number)[index]
        return next(self._make_rows(self._lists(slice(at, at + 1))))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._number}>"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Have pydantic read the rows from a file by ``from_plain``, whose ValueError says what is wrong."""
        from pydantic_core import PydanticCustomError, core_schema  # slow to import, and only needed to read files

        def read(plain: Any) -> "Columnar[Any]":
            try:
                return plain if isinstance(plain, cls) else cls.from_plain(plain)
            except ValueError as error:
                raise PydanticCustomError("columns", "{problem}", {"problem": str(error)}) from error

        return core_schema.no_info_plain_validator_function(read)

    @property
    def memory(self) -> int:
        """The bytes that the columns take; what several share counts once."""
        columns = {id(column): column for column in self.kept.values()}
        return sum(column.nbytes for column in columns.values() if column.strides != (0,))

    def _lists(self, rows: slice) -> dict[str, list[Any]]:
        return {name: column[rows].tolist() for name, column in self.kept.items()}

    def _equal_columns(self, other: "Columnar[Any]", names: Sequence[str]) -> bool:
        """Return whether these columns of both hold the same numbers."""
        return len(self) == len(other) and all(np.array_equal(self.kept[name], other.kept[name]) for name in names)


def _pack(values: npt.ArrayLike, kind: type[np.generic], number: int) -> npt.NDArray[Any]:
    """Return ``number`` entries in the smallest type that holds them; if all are equal they share one place.

    What is in the right type already is kept, not copied.
    """
    column = np.asarray(values)
    if column.shape not in ((), (number,)):
        raise ValueError(f"a column of {len(column)} entries among columns of {number}")
    if number == 0:
        return np.zeros(0, kind)
    if np.dtype(kind).kind != "i":
        column = column.astype(kind, copy=False)
    elif column.dtype.kind not in "iu":
        column = column.astype(kind)
    first = column.flat[0]
    if bool((column == first).all()):
        return np.broadcast_to(narrow(np.array(first)), (number,))
    kept = narrow(column).view()
    kept.setflags(write=False)
    return kept


def shrink(column: npt.NDArray[Any], at: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the entries of a column of whole numbers at some places, in the smallest type that holds them all.

    If all entries of the column are equal, those returned share one place.

    >>> shrink(np.array([7, 300, 9]), np.array([2, 0])).dtype
    dtype('uint16')
    """
    if not len(column):
        return np.asarray(column[at])
    if column.min() == column.max():
        return np.broadcast_to(narrow(column[:1])[0], (len(at),))
    return np.asarray(narrow(column)[at])


def narrow(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return whole numbers in the smallest type that holds them, others as they are; there must be some.

    >>> narrow(np.array([1, 300])).dtype
    dtype('uint16')
    """
    if column.dtype.kind not in "iu":
        return column
    least = np.result_type(np.min_scalar_type(column.min()), np.min_scalar_type(column.max()))
    return column.astype(least, copy=False)
