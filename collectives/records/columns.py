"""Store rows as columns: one array per field, in the smallest type that can represent its numbers.

Two million messages take gigabytes as objects, but less than 100 MB as columns. A column is read as int64, float64 or
bool, whatever its stored type, so arithmetic cannot overflow. A row is created when it is accessed.

In a file, a short column is a list of numbers, which people can read. A longer column is packed: its type (``u2``:
two-byte integers) and its bytes, little-endian. The first bytes of all numbers come first, then all second bytes, and
so on, because bytes of equal significance are similar. The bytes are deflated (RFC 1951, in the format of RFC 1950) and
encoded in base64. A file is checked before memory is allocated for its content.
"""

import base64
import binascii
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from collectives.budget import Gigabyte, allowed, more_memory
from collectives.quoting import quote

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)
Row = TypeVar("Row", bound=tuple[Any, ...])
AT_ONCE = 1 << 14  # rows that an iteration creates at once
PLAIN_UP_TO = 2_000  # number of rows; longer columns are packed
TYPES: dict[type[np.generic], tuple[str, ...]] = {
    np.int64: ("u1", "u2", "u4", "u8"),
    np.float64: ("f8",),
    np.bool_: ("b1",),
}


class Column(Generic[Number]):
    """Descriptor of a column in a ``Columnar`` class. An instance returns an array with one entry per row."""

    def __init__(self, kind: type[Number]) -> None:
        self.kind = kind
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, rows: "Columnar[Any]", owner: type) -> npt.NDArray[Number]:
        column: npt.NDArray[Number] = rows.kept[self.name].astype(self.kind, copy=False)
        return column


class Columnar(ABC, Generic[Row]):
    """Immutable rows, stored as columns. The class has one ``Column`` per field of a row."""

    COLUMNS: ClassVar[dict[str, type[np.generic]]]  # type of the numbers in each column

    def __init_subclass__(cls) -> None:
        columns = ((name, value.kind) for name, value in vars(cls).items() if isinstance(value, Column))
        cls.COLUMNS = dict(columns)

    def __init__(self, columns: dict[str, npt.ArrayLike]) -> None:
        """Store columns of equal length. A column can be a single number, which applies to all rows."""
        lengths = (np.size(column) for column in columns.values() if np.ndim(column))
        self._number = number = next(lengths, 1)
        self.kept = {name: _pack(columns[name], kind, number) for name, kind in self.COLUMNS.items()}

    @abstractmethod
    def _make_rows(self, columns: dict[str, list[Any]]) -> Iterator[Row]:
        """Yield the rows whose fields are in ``columns``, a list per column."""

    @classmethod
    @abstractmethod
    def from_plain(cls, plain: object) -> Self:
        """Return the rows from the content of a file. Raise ValueError if it is invalid."""

    @abstractmethod
    def select(self, which: npt.NDArray[Any] | slice) -> Self:
        """Return the rows at some indices, in a slice, or in a mask."""

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
        """Let pydantic read the rows with ``from_plain``."""
        from pydantic_core import PydanticCustomError, core_schema  # slow to import; only needed to read files

        def read(plain: Any) -> "Columnar[Any]":
            try:
                return plain if isinstance(plain, cls) else cls.from_plain(plain)
            except ValueError as error:
                raise PydanticCustomError("columns", "{problem}", {"problem": str(error)}) from error

        return core_schema.no_info_plain_validator_function(read)

    @property
    def memory(self) -> int:
        """The size of the columns in bytes. Shared memory counts once."""
        columns = {id(column): column for column in self.kept.values()}
        return sum(column.nbytes for column in columns.values() if column.strides != (0,))

    def _lists(self, rows: slice) -> dict[str, list[Any]]:
        return {name: column[rows].tolist() for name, column in self.kept.items()}

    def _equal_columns(self, other: "Columnar[Any]", names: Sequence[str]) -> bool:
        return len(self) == len(other) and all(np.array_equal(self.kept[name], other.kept[name]) for name in names)


def _pack(values: npt.ArrayLike, kind: type[np.generic], number: int) -> npt.NDArray[Any]:
    """Return ``number`` entries in the smallest type that can represent them, without a needless copy.

    Equal entries are stored only once.
    """
    column = np.asarray(values)
    if column.shape not in ((), (number,)):
        raise ValueError(f"columns must have equal lengths, not {number} and {len(column)}")
    if number == 0:
        return np.zeros(0, kind)
    if np.dtype(kind).kind != "i":
        column = column.astype(kind, copy=False)
    elif column.dtype.kind not in "iu":
        column = column.astype(kind)
    first = column.flat[0]
    if bool((column == first).all()):
        return np.broadcast_to(narrow(np.array(first)), (number,))
    view = narrow(column).view()
    view.setflags(write=False)
    return view


def shrink(column: npt.NDArray[Any], at: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the entries ``at`` of an integer column, in the smallest type that can represent the whole column.

    If all entries of the column are equal, they are stored only once.

    >>> shrink(np.array([7, 300, 9]), np.array([2, 0])).dtype
    dtype('uint16')
    """
    if not len(column):
        return np.asarray(column[at])
    if column.min() == column.max():
        return np.broadcast_to(narrow(column[:1])[0], (len(at),))
    return np.asarray(narrow(column)[at])


def narrow(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return non-empty integers in the smallest type that can represent them, and other arrays unchanged.

    >>> narrow(np.array([1, 300])).dtype
    dtype('uint16')
    """
    if column.dtype.kind not in "iu":
        return column
    least = np.result_type(np.min_scalar_type(column.min()), np.min_scalar_type(column.max()))
    return column.astype(least, copy=False)


def columns_to_plain(rows: Columnar[Any]) -> dict[str, Any]:
    """Return the columns as JSON content for ``read_columns``."""
    return {"rows": len(rows), "columns": {name: column_to_plain(column) for name, column in rows.kept.items()}}


def column_to_plain(column: npt.NDArray[Any]) -> list[Any] | dict[str, Any]:
    """Return a column as JSON content for ``read_column``.

    >>> column_to_plain(np.array([1, 2, 3]))
    [1, 2, 3]
    """
    if len(column) <= PLAIN_UP_TO:
        return list(column.tolist())
    if column.strides == (0,):
        return {"all": column[0].item()}
    column = narrow(column)
    little = np.ascontiguousarray(column, column.dtype.newbyteorder("<"))
    planes = little.view(np.uint8).reshape(len(column), -1).T.tobytes()
    return {"type": column.dtype.str[1:], "deflated": base64.b64encode(zlib.compress(planes, 1)).decode()}


def read_columns(plain: object, kinds: Mapping[str, type[np.generic]]) -> dict[str, npt.NDArray[Any]]:
    """Return the columns from the content that ``columns_to_plain`` created. Raise ValueError if it is invalid."""
    table = take(plain, ("rows", "columns"))
    rows = check_rows(table["rows"], "rows")
    columns = take(table["columns"], tuple(kinds), "columns")
    return {name: read_column(columns[name], kind, rows, name) for name, kind in kinds.items()}


def check_rows(rows: object, name: str) -> int:
    """Return ``rows`` if it is a valid number of rows. Raise ValueError if it is invalid or too large.

    >>> check_rows(3, "rows")
    3
    """
    most = allowed(Gigabyte.ROWS)
    if type(rows) is not int or not 0 <= rows <= most:
        raise ValueError(f"{name}: {quote(rows)} is not an integer from 0 to {most}; for more, {more_memory(2)}")
    return rows


def read_column(plain: object, kind: type[np.generic], rows: int, name: str) -> npt.NDArray[Any]:
    """Return a column of ``rows`` numbers from the content that ``column_to_plain`` created.

    Raise ValueError if the content is invalid; the message starts with ``name``.

    >>> read_column([1, 2], np.int64, rows=2, name="src")
    array([1, 2])
    """
    if isinstance(plain, list):
        column = _read_list(plain, kind, name)
    elif isinstance(plain, dict) and plain.keys() == {"all"}:
        column = np.broadcast_to(_read_list([plain["all"]], kind, name), (rows,))
    else:
        column = _unpack(take(plain, ("type", "deflated"), name), kind, rows, name)
    if len(column) != rows:
        raise ValueError(f"{name}: {len(column)} entries for {rows} rows")
    return column


def take(plain: object, keys: tuple[str, ...], name: str = "") -> dict[str, Any]:
    """Return ``plain`` if it is a dict with exactly these keys. Raise ValueError otherwise.

    >>> take({"rows": 2}, ("rows",))
    {'rows': 2}
    """
    where = f"{name}: " if name else ""
    if not isinstance(plain, dict):
        raise ValueError(f"{where}{quote(plain)} is not a table with the keys {', '.join(keys)}")
    for key in keys:
        if key not in plain:
            raise ValueError(f"{where}{key} is missing")
    for key in plain.keys() - set(keys):
        raise ValueError(f"{where}{quote(key)} is not a key; choose one of {', '.join(keys)}")
    return plain


def _read_list(values: list[Any], kind: type[np.generic], name: str) -> npt.NDArray[Any]:
    right: Callable[[Any], bool]
    if kind is np.int64:
        right, expected = (lambda value: type(value) is int and 0 <= value < 1 << 63), "a non-negative integer"
    elif kind is np.bool_:
        right, expected = (lambda value: type(value) is bool), "true or false"
    else:
        right, expected = (lambda value: type(value) in (int, float) and abs(value) < np.inf), "a finite number"
    for number, value in enumerate(values):
        if not right(value):
            raise ValueError(f"{name}.{number}: {quote(value)} is not {expected}")
    return np.array(values, kind)


def _unpack(plain: dict[str, Any], kind: type[np.generic], rows: int, name: str) -> npt.NDArray[Any]:
    """Return a packed column. No more than the expected size is decompressed."""
    types, text = TYPES[kind], plain["deflated"]
    if plain["type"] not in types:
        raise ValueError(f"{name}.type: {quote(plain['type'])} is none of {', '.join(types)}")
    dtype: np.dtype[Any] = np.dtype("<" + plain["type"])
    expected = rows * dtype.itemsize
    try:
        column, nbytes = _inflate(base64.b64decode(text, validate=True), dtype, rows)
    except (TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise ValueError(f"{name}.deflated: {error}") from error
    if column is None:
        actual = f"more than {expected}" if nbytes > expected else nbytes
        raise ValueError(f"{name}.deflated: {actual} bytes where {rows} rows take {expected}, or an incomplete stream")
    if plain["type"] == "b1" and column.view(np.uint8).max(initial=0) > 1:
        raise ValueError(f"{name}.deflated: a byte that is neither 0 nor 1")
    if plain["type"] == "u8" and rows and column.max() >= 1 << 63:
        raise ValueError(f"{name}.deflated: a number of 2^63 or more")
    if kind is np.float64 and not np.isfinite(column).all():
        raise ValueError(f"{name}.deflated: a number that is not finite")
    return column


def _inflate(packed: bytes, dtype: np.dtype[Any], rows: int) -> tuple[npt.NDArray[Any] | None, int]:
    """Return the column in a deflated stream, or None if the size does not fit ``rows``, and the size in bytes.

    The bytes of one significance are decompressed at a time.
    """
    column = np.empty(rows, dtype)
    significance, inflater, nbytes = column.view(np.uint8).reshape(rows, dtype.itemsize), zlib.decompressobj(), 0
    for at in range(dtype.itemsize if rows else 0):
        plane = inflater.decompress(packed, rows)
        packed, nbytes = inflater.unconsumed_tail, nbytes + len(plane)
        if len(plane) < rows:
            return None, nbytes
        significance[:, at] = np.frombuffer(plane, np.uint8)
    nbytes += len(inflater.decompress(packed, 1))
    is_whole = nbytes == column.nbytes and inflater.eof and not inflater.unused_data
    return (column if is_whole else None), nbytes
