"""Store rows as columns: one array per field, in the smallest type that can represent its numbers.

Two million messages take gigabytes as objects, but less than 100 MB as columns. A column is returned as int64, float64
or bool, whatever its stored type, so arithmetic cannot overflow. A row is created when it is accessed.

In a file, a short column is a list of numbers. A longer column is packed: its type (such as ``u2`` for two-byte
integers) and its little-endian bytes, which are deflated (RFC 1950) and encoded in base64. To compress well, the lowest
bytes of all numbers come first, then the second bytes, and so on. A file is checked before memory is allocated for it.
"""

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """A descriptor that declares a column of a ``Columnar`` class. On an instance, it returns the column's array."""

    def __init__(self, kind: type[Number]) -> None:
        self.kind = kind
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, rows: "Columnar[Any]", owner: type) -> npt.NDArray[Number]:
        column: npt.NDArray[Number] = rows.kept[self.name].astype(self.kind, copy=False)
        return column


class Columnar(Generic[Row]):
    """Immutable rows, stored as columns. A subclass has one ``Column`` for each field of a row.

    One column can contain *labels*, such as names. The column stores indices into ``labels``, and a row contains the
    label itself. Iteration and integer indices return rows. A slice returns an object of the same class.
    """

    ROW: ClassVar[Any]  # the NamedTuple of a row
    LABEL: ClassVar[str] = ""  # the column of labels
    LABELS: ClassVar[str] = ""  # the key of all labels in a file
    COLUMNS: ClassVar[dict[str, type[np.generic]]]  # type of the numbers in each column

    def __init_subclass__(cls) -> None:
        cls.COLUMNS = {name: value.kind for name, value in vars(cls).items() if isinstance(value, Column)}

    def __init__(self, labels: Any = (), **columns: npt.ArrayLike) -> None:
        """Store columns of equal length. A number stands for a constant column. Missing columns get the defaults."""
        columns = self.ROW._field_defaults | columns
        lengths = (np.size(column) for column in columns.values() if np.ndim(column))
        self.labels, self._number = labels, next(lengths, 1)
        self.kept = {name: _pack(columns[name], kind, self._number) for name, kind in self.COLUMNS.items()}

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Self:
        labels, columns = cls._split(rows)
        return cls(labels, **columns)

    @classmethod
    def _split(cls, rows: Iterable[Row]) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
        fields: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(cls.ROW._fields)
        columns, numbers = dict(zip(cls.ROW._fields, fields, strict=True)), dict[Any, int]()
        if cls.LABEL:
            columns[cls.LABEL] = [numbers.setdefault(label, len(numbers)) for label in columns[cls.LABEL]]
        return cls._make_labels(numbers), {name: np.array(values) for name, values in columns.items()}

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of several objects as one object. Equal labels are stored once."""
        if not parts:
            return cls.of(())
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.COLUMNS}
        labels = parts[0].labels
        if any(part.labels != labels for part in parts):
            numbers: dict[Any, int] = {}
            new = [np.array([numbers.setdefault(each, len(numbers)) for each in part.labels], int) for part in parts]
            renumbered = [number[getattr(part, cls.LABEL)] for number, part in zip(new, parts, strict=True)]
            columns[cls.LABEL], labels = np.concatenate(renumbered), cls._make_labels(numbers)
        return cls(labels, **columns)

    def select(self, which: npt.NDArray[Any] | slice) -> Self:
        return type(self)(self.labels, **{name: column[which] for name, column in self.kept.items()})

    def to_plain(self) -> dict[str, Any]:
        """Return the rows as JSON content, which ``from_plain`` can read."""
        columns = {name: column_to_plain(column) for name, column in self.kept.items()}
        labels = {self.LABELS: self._labels_to_plain()} if self.LABELS else {}
        return {"rows": len(self), "columns": columns, **labels}

    @classmethod
    def from_plain(cls, plain: object) -> Self:
        """Build the rows from the JSON content of ``to_plain``. Raise ValueError if the content is invalid."""
        table = take(plain, ("rows", "columns", *filter(None, [cls.LABELS])))
        rows, given = check_rows(table["rows"], "rows"), take(table["columns"], tuple(cls.COLUMNS), "columns")
        labels = cls._read_labels(table[cls.LABELS]) if cls.LABELS else ()
        columns = {name: read_column(given[name], kind, rows, name) for name, kind in cls.COLUMNS.items()}
        for at in first_where(columns[cls.LABEL] >= len(labels)) if cls.LABEL else []:
            number = columns[cls.LABEL][at]
            raise ValueError(f"columns: {cls.LABEL}.{at} must be an index of {len(labels)} {cls.LABELS}, not {number}")
        return cls(labels, **columns)

    _make_labels: ClassVar[Any] = tuple  # from an iterable

    def _labels_to_plain(self) -> Any:
        return list(self.labels)

    @classmethod
    def _read_labels(cls, plain: Any) -> Any:
        if not isinstance(plain, list) or not all(isinstance(label, str) for label in plain):
            raise ValueError(f"{cls.LABELS} must be a list of strings")
        return tuple(plain)

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Row]:
        for first in range(0, self._number, AT_ONCE):
            yield from self._rows(slice(first, first + AT_ONCE))

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Row | Self:
        if isinstance(index, slice):
            return self.select(index)
        at = range(self._number)[index]
        return next(self._rows(slice(at, at + 1)))

    def _rows(self, which: slice) -> Iterator[Row]:
        columns = self._lists(which)
        if self.LABEL:
            labels = {number: self.labels[number] for number in set(columns[self.LABEL])}
            columns[self.LABEL] = [labels[number] for number in columns[self.LABEL]]
        return map(self.ROW._make, zip(*(columns[name] for name in self.ROW._fields), strict=True))

    def _lists(self, which: slice) -> dict[str, list[Any]]:
        return {name: column[which].tolist() for name, column in self.kept.items()}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._number}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        names = self.COLUMNS.keys() - {self.LABEL}
        if len(self) != len(other) or not all(np.array_equal(self.kept[name], other.kept[name]) for name in names):
            return False
        if not self.LABEL:
            return True
        pairs = np.unique(np.stack([self.kept[self.LABEL], other.kept[self.LABEL]]), axis=1).T.tolist()
        return all(self.labels[number] == other.labels[two] for number, two in pairs)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import PydanticCustomError, core_schema  # slow to import; only needed to read files

        def read(plain: Any) -> "Columnar[Any]":
            try:
                return plain if isinstance(plain, cls) else cls.from_plain(plain)
            except ValueError as error:
                raise PydanticCustomError("columns", "{problem}", {"problem": str(error)}) from error

        return core_schema.no_info_plain_validator_function(read)


def _pack(values: npt.ArrayLike, kind: type[np.generic], number: int) -> npt.NDArray[Any]:
    """Return ``values`` as an array of ``number`` entries in the smallest type that can represent them.

    If all entries are equal, only one is stored. Raise ValueError if ``values`` has another length.
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


def first_where(mask: Bools) -> list[int]:
    """Return a list with the index of the first True, or an empty list if there is none."""
    return list(np.flatnonzero(mask)[:1].tolist())


def shrink(column: npt.NDArray[Any], at: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``column[at]``, with the smallest integer type that can represent every entry of ``column``.

    If all entries of the column are equal, they are stored only once.
    """
    if not len(column):
        return np.asarray(column[at])
    if column.min() == column.max():
        return np.broadcast_to(narrow(column[:1])[0], (len(at),))
    return np.asarray(narrow(column)[at])


def narrow(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of integers in the smallest type that can represent them. Other arrays are returned unchanged."""
    if column.dtype.kind not in "iu":
        return column
    least = np.result_type(np.min_scalar_type(column.min()), np.min_scalar_type(column.max()))
    return column.astype(least, copy=False)


def column_to_plain(column: npt.NDArray[Any]) -> list[Any] | dict[str, Any]:
    """Return a column as JSON content, which ``read_column`` can read."""
    if len(column) <= PLAIN_UP_TO:
        return list(column.tolist())
    if column.strides == (0,):
        return {"all": column[0].item()}
    column = narrow(column)
    little = np.ascontiguousarray(column, column.dtype.newbyteorder("<"))
    planes = little.view(np.uint8).reshape(len(column), -1).T.tobytes()
    return {"type": column.dtype.str[1:], "deflated": base64.b64encode(zlib.compress(planes, 1)).decode()}


def check_rows(rows: object, name: str) -> int:
    """Return ``rows``. Raise ValueError unless it is an integer from 0 to the maximum that fits into memory."""
    most = allowed(Gigabyte.ROWS)
    if type(rows) is not int or not 0 <= rows <= most:
        raise ValueError(f"{name} must be an integer from 0 to {most}, not {quote(rows)}; for more, {more_memory(2)}")
    return rows


def read_column(plain: object, kind: type[np.generic], rows: int, name: str) -> npt.NDArray[Any]:
    """Return a column of ``rows`` numbers from JSON content that ``column_to_plain`` returned.

    Raise ValueError if the content is invalid. The message starts with ``name``.
    """
    if isinstance(plain, list):
        column = _read_list(plain, kind, name)
    elif isinstance(plain, dict) and plain.keys() == {"all"}:
        column = np.broadcast_to(_read_list([plain["all"]], kind, name), (rows,))
    else:
        column = _unpack(take(plain, ("type", "deflated"), name), kind, rows, name)
    if len(column) != rows:
        raise ValueError(f"{name} must have {rows} entries, not {len(column)}")
    return column


def take(plain: object, keys: tuple[str, ...], name: str = "") -> dict[str, Any]:
    """Return ``plain``. Raise ValueError unless it is a dict with exactly the given keys."""
    if not isinstance(plain, dict) or plain.keys() != set(keys):
        given = quote([*plain] if isinstance(plain, dict) else plain)
        raise ValueError(f"{name and f'{name}: '}must be a table with the keys {', '.join(keys)}, not {given}")
    return plain


def _read_list(values: list[Any], kind: type[np.generic], name: str) -> npt.NDArray[Any]:
    checks: dict[type[np.generic], tuple[Callable[[Any], bool], str]] = {
        np.int64: (lambda value: type(value) is int and 0 <= value < 1 << 63, "a non-negative integer"),
        np.bool_: (lambda value: type(value) is bool, "true or false"),
        np.float64: (lambda value: type(value) in (int, float) and abs(value) < np.inf, "a finite number"),
    }
    is_right, expected = checks[kind]
    for number, value in enumerate(values):
        if not is_right(value):
            raise ValueError(f"{name}.{number} must be {expected}, not {quote(value)}")
    return np.array(values, kind)


def _unpack(plain: dict[str, Any], kind: type[np.generic], rows: int, name: str) -> npt.NDArray[Any]:
    """Return the numbers of a packed column. Decompression stops as soon as there are more bytes than expected."""
    if plain["type"] not in TYPES[kind]:
        raise ValueError(f"{name}.type must be one of {', '.join(TYPES[kind])}, not {quote(plain['type'])}")
    dtype, inflater = np.dtype("<" + plain["type"]), zlib.decompressobj()
    column: npt.NDArray[Any] = np.empty(rows, dtype)
    planes, size = column.view(np.uint8).reshape(rows, dtype.itemsize).T, 0
    try:
        packed = base64.b64decode(plain.pop("deflated"), validate=True)  # the text is no longer needed
        for plane in planes if rows else ():  # one at a time, to need little memory
            content = inflater.decompress(packed, rows)
            packed, size = inflater.unconsumed_tail, size + len(content)
            plane[: len(content)] = np.frombuffer(content, np.uint8)
        size += len(inflater.decompress(packed, 1))
    except (TypeError, ValueError, zlib.error) as error:
        raise ValueError(f"{name}.deflated: {error}") from error
    if size != column.nbytes or not inflater.eof or inflater.unused_data:
        actual = f"more than {column.nbytes}" if size > column.nbytes else size
        raise ValueError(f"{name}.deflated must have {column.nbytes} bytes for {rows} rows, complete, not {actual}")
    if plain["type"] == "b1" and planes.max(initial=0) > 1:
        raise ValueError(f"{name}.deflated must contain only the bytes 0 and 1")
    if plain["type"] == "u8" and rows and column.max() >= 1 << 63:
        raise ValueError(f"{name}.deflated must contain only numbers below 2^63")
    if kind is np.float64 and not np.isfinite(column).all():
        raise ValueError(f"{name}.deflated must contain only finite numbers")
    return column
