"""Columns of numbers as text for a page: little-endian, the bytes of one significance together, deflated, base64."""

import zlib
from base64 import b64encode
from typing import Any

import numpy as np
import numpy.typing as npt

TICKS = 1 << 30  # of a run: times are whole numbers of its elapsed seconds over this
TYPES = ("u1", "u2", "i4", "f8")  # that columns.js knows


def pack(values: npt.ArrayLike) -> dict[str, Any]:
    """Return a column as columns.js inflates it: type, length, and the text.

    >>> from base64 import b64decode
    >>> column = pack([1, 2, 300])
    >>> column["type"], column["length"], zlib.decompress(b64decode(column["text"])).hex()
    ('u2', 3, '01022c000001')
    """
    column = np.ascontiguousarray(values)
    kind = _smallest(column)
    column = column.astype(np.dtype(kind).newbyteorder("<"))
    planes = column.view(np.uint8).reshape(column.size, -1).T.tobytes() if column.size else b""
    return {"type": kind, "length": int(column.size), "text": b64encode(zlib.compress(planes, 6)).decode()}


def ticks(seconds: npt.NDArray[np.float64], elapsed: float) -> npt.NDArray[np.int64]:
    """Return times as ticks of a run.

    >>> ticks(np.array([0.0, 0.5]), 1.0).tolist()
    [0, 536870912]
    """
    return np.rint(np.clip(seconds / elapsed, 0.0, 1.0) * TICKS).astype(np.int64)


def _smallest(column: npt.NDArray[Any]) -> str:
    """Return the smallest type that holds all values."""
    if column.dtype.kind == "f":
        return "f8"
    low, high = (int(column.min()), int(column.max())) if column.size else (0, 0)
    if low < 0 or high >= 1 << 16:
        return "i4" if low >= -(1 << 31) and high < 1 << 31 else "f8"
    return "u1" if high < 1 << 8 else "u2"
