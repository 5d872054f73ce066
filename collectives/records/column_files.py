"""Columns in a file: lists of numbers while a person may read them, beyond that packed.

A packed column is its type (``u2``: whole numbers of two bytes) and the bytes of its numbers, little-endian: all first
bytes, then all second bytes and so on, since bytes of one significance are alike; deflated (RFC 1951, in the framing of
RFC 1950) and in base64. What is read is checked before memory is taken for it.
"""

import base64
import binascii
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.records.columnar import Columnar, narrow

PLAIN_UP_TO = 2_000  # rows; more are packed
MOST_ROWS = 4_000_000  # that are read; a message takes about 40 bytes, and twice that while it is read
TYPES: dict[type[np.generic], tuple[str, ...]] = {
    np.int64: ("u1", "u2", "u4", "u8"),
    np.float64: ("f8",),
    np.bool_: ("b1",),
}


def columns_to_plain(rows: Columnar[Any]) -> dict[str, Any]:
    """Return the columns as JSON knows them; ``read_columns`` reads it."""
    return {"rows": len(rows), "columns": {name: column_to_plain(column) for name, column in rows.kept.items()}}


def column_to_plain(column: npt.NDArray[Any]) -> list[Any] | dict[str, Any]:
    """Return a column as JSON knows it; ``read_column`` reads it.

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
    """Return the columns in what ``columns_to_plain`` returned. Raise ValueError that says what is wrong with it."""
    held = take(plain, ("rows", "columns"))
    rows = check_rows(held["rows"], "rows")
    columns = take(held["columns"], tuple(kinds), "columns")
    return {name: read_column(columns[name], kind, rows, name) for name, kind in kinds.items()}


def check_rows(rows: object, name: str) -> int:
    """Return a number of rows. Raise ValueError for none, and for more than are read.

    >>> check_rows(3, "rows")
    3
    """
    if type(rows) is not int or not 0 <= rows <= MOST_ROWS:
        raise ValueError(f"{name}: {_shown(rows)} is no whole number from 0 to {MOST_ROWS}")
    return rows


def read_column(plain: object, kind: type[np.generic], rows: int, name: str) -> npt.NDArray[Any]:
    """Return the column of ``rows`` numbers of a kind that ``column_to_plain`` returned.

    Raises ValueError that names the column and says what is wrong with it.

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
    """Return a table of a file that has these keys and no other. Raise ValueError for anything else.

    >>> take({"rows": 2}, ("rows",))
    {'rows': 2}
    """
    where = f"{name}: " if name else ""
    if not isinstance(plain, dict):
        raise ValueError(f"{where}{_shown(plain)} is not a table with the keys {', '.join(keys)}")
    for key in keys:
        if key not in plain:
            raise ValueError(f"{where}{key} is missing")
    for key in plain.keys() - set(keys):
        raise ValueError(f"{where}{_shown(key)} is not a key; there are {', '.join(keys)}")
    return plain


def _read_list(values: list[Any], kind: type[np.generic], name: str) -> npt.NDArray[Any]:
    """Return a list of numbers of a kind as an array; whole numbers and bool are not taken for each other."""
    right: Callable[[Any], bool]
    if kind is np.int64:
        right, what = (lambda value: type(value) is int and 0 <= value < 1 << 63), "a whole number from 0 on"
    elif kind is np.bool_:
        right, what = (lambda value: type(value) is bool), "true or false"
    else:
        right, what = (lambda value: type(value) in (int, float) and abs(value) < np.inf), "a finite number"
    for number, value in enumerate(values):
        if not right(value):
            raise ValueError(f"{name}.{number}: {_shown(value)} is not {what}")
    return np.array(values, kind)


def _unpack(plain: dict[str, Any], kind: type[np.generic], rows: int, name: str) -> npt.NDArray[Any]:
    """Return a packed column; no more bytes are inflated than it may have."""
    types, text = TYPES[kind], plain["deflated"]
    if plain["type"] not in types:
        raise ValueError(f"{name}.type: {_shown(plain['type'])} is none of {', '.join(types)}")
    kept: np.dtype[Any] = np.dtype("<" + plain["type"])
    expected = rows * kept.itemsize
    try:
        column, found = _inflate(base64.b64decode(text, validate=True), kept, rows)
    except (TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise ValueError(f"{name}.deflated: {error}") from error
    if column is None:
        said = f"more than {expected}" if found > expected else found
        raise ValueError(f"{name}.deflated: {said} bytes where {rows} rows take {expected}, or an incomplete stream")
    if plain["type"] == "b1" and column.view(np.uint8).max(initial=0) > 1:
        raise ValueError(f"{name}.deflated: a byte that is neither 0 nor 1")
    if plain["type"] == "u8" and rows and column.max() >= 1 << 63:
        raise ValueError(f"{name}.deflated: a number of 2^63 or more")
    if kind is np.float64 and not np.isfinite(column).all():
        raise ValueError(f"{name}.deflated: a number that is not finite")
    return column


def _inflate(packed: bytes, kept: np.dtype[Any], rows: int) -> tuple[npt.NDArray[Any] | None, int]:
    """Return the column in a deflated stream, and its bytes; None where there are more or fewer than its rows take.

    The bytes of one significance are inflated at a time, and put where they belong.
    """
    column = np.empty(rows, kept)
    significance, inflater, found = column.view(np.uint8).reshape(rows, kept.itemsize), zlib.decompressobj(), 0
    for at in range(kept.itemsize if rows else 0):
        plane = inflater.decompress(packed, rows)
        packed, found = inflater.unconsumed_tail, found + len(plane)
        if len(plane) < rows:
            return None, found
        significance[:, at] = np.frombuffer(plane, np.uint8)
    found += len(inflater.decompress(packed, 1))
    is_whole = found == column.nbytes and inflater.eof and not inflater.unused_data
    return (column if is_whole else None), found


def _shown(value: object) -> str:
    """Return a value as text that is not longer than what it stands for in a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
