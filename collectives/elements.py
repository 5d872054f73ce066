"""Types of elements and operators that reduce them: what both wings can compute with."""

from collectives.errors import InputError
from collectives.quoting import quote

ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "int8": 1, "uint8": 1}
FLOATING = {"float32", "float64", "float16", "bfloat16"}
OPS = ("sum", "mean", "min", "max", "product")


def item_bytes(dtype: str) -> int:
    """Return the bytes of one element. Raise InputError for a type that is not known, or that is not its name.

    >>> item_bytes("bfloat16")
    2
    """
    given: object = dtype
    if not isinstance(given, str):
        name = getattr(dtype, "__name__", str(dtype)).rpartition(".")[2]
        raise InputError(f"dtype is {quote(dtype)}; give its name, {quote(name if name in ITEM_BYTES else 'float32')}")
    if dtype not in ITEM_BYTES:
        raise InputError(f"dtype {quote(dtype)} is not known; there are {', '.join(ITEM_BYTES)}")
    return ITEM_BYTES[dtype]


def check_op(op: str, dtype: str) -> None:
    """Raise InputError unless ``op`` can reduce elements of ``dtype``; mean divides, so it needs a floating type."""
    if op not in OPS:
        raise InputError(f"op {quote(op)} is not known; there are {', '.join(OPS)}")
    item_bytes(dtype)
    if op == "mean" and dtype not in FLOATING:
        raise InputError(f"op 'mean' needs a floating dtype, not {quote(dtype)}")
