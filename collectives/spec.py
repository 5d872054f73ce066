"""Define each collective by the data that each rank has before and after it.

A spec describes a buffer of ``world_size`` equal parts on every rank. For each part, it gives the *contributors*: the
ranks whose data is summed into the part. ``None`` means that the part is undefined. As in nccl-tests, the size of a
collective is the size of the whole buffer, even if a rank starts or ends with only one part of it.

| collective     | rank r starts with | rank r ends with                          |
| -------------- | ------------------ | ----------------------------------------- |
| broadcast      | root: its buffer   | the root's buffer                         |
| reduce         | its buffer         | root: the sum of all buffers              |
| all_reduce     | its buffer         | the sum of all buffers                    |
| scatter        | root: its buffer   | part r of the root's buffer               |
| gather         | its part r         | root: part i of each rank i               |
| all_gather     | its part r         | part i of each rank i                     |
| reduce_scatter | its buffer         | part r of the sum of all buffers          |
| all_to_all     | its buffer         | as part i, part r of each rank i's buffer |
| barrier        | its token          | every rank's token, once or more          |
"""

from collections.abc import Callable
from typing import NamedTuple

from collectives.checks import check_known, check_text
from collectives.errors import InputError
from collectives.quoting import quote

ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "int8": 1, "uint8": 1}
FLOATING = {"float32", "float64", "float16", "bfloat16"}
OPS = ("sum", "mean", "min", "max", "product")

Contributors = frozenset[int]
Contents = Callable[[int, int, int, int], Contributors | None]  # of (rank, part, world_size, root)


class Spec(NamedTuple):
    """The definition of a collective: the data that each rank has before it and after it."""

    name: str
    start: Contents
    end: Contents
    rooted: bool = False  # programs take (rank, world_size, root)
    reduces: bool = False  # whether an operator (sum, mean, min, max, product) applies
    beginning: str = "every rank starts with data"  # start of the ranks, for messages
    has_parts: bool = False  # parts differ between ranks, so the number of chunks must be a multiple of world_size
    moves: bool = False  # part r of rank i ends as part i of rank r; in other collectives, data keeps its place
    repeats: bool = False  # a contribution may count more than once

    @property
    def is_shared(self) -> bool:
        """Whether several ranks end with the same reduced data, as in an all_reduce."""
        return self.reduces and not self.rooted and not self.has_parts

    def origin(self, rank: int, part: int) -> int:
        """Return the part of a contributor's buffer that becomes ``part`` of this rank's buffer."""
        return rank if self.moves else part

    def result(self, rank: int, world_size: int, root: int) -> range:
        """Return the parts of this rank's buffer that are defined after the collective: all, only its own, or none."""
        own_part, next_rank = range(rank, rank + 1), (rank + 1) % world_size
        if self.end(rank, rank, world_size, root) is None:
            return range(0)
        return own_part if self.end(rank, next_rank, world_size, root) is None else range(world_size)


CONTENTS: dict[str, Contents] = {
    "own": lambda rank, part, p, root: frozenset({rank}),
    "own part": lambda rank, part, p, root: frozenset({rank}) if part == rank else None,
    "root's": lambda rank, part, p, root: frozenset({root}),
    "root only": lambda rank, part, p, root: frozenset({root}) if rank == root else None,
    "root's in own part": lambda rank, part, p, root: frozenset({root}) if part == rank else None,
    "each": lambda rank, part, p, root: frozenset({part}),
    "each at root": lambda rank, part, p, root: frozenset({part}) if rank == root else None,
    "all": lambda rank, part, p, root: frozenset(range(p)),
    "all at root": lambda rank, part, p, root: frozenset(range(p)) if rank == root else None,
    "all in own part": lambda rank, part, p, root: frozenset(range(p)) if part == rank else None,
}
ONLY_ROOT = "only the root, rank {root}, starts with data"
ONLY_OWN = "rank r starts with part r only"

SPECS = {
    name: Spec(name, start=CONTENTS[start], end=CONTENTS[end], **more)
    for name, start, end, more in (
        ("broadcast", "root only", "root's", {"rooted": True, "beginning": ONLY_ROOT}),
        ("reduce", "own", "all at root", {"rooted": True, "reduces": True}),
        ("all_reduce", "own", "all", {"reduces": True}),
        ("scatter", "root only", "root's in own part", {"rooted": True, "has_parts": True, "beginning": ONLY_ROOT}),
        ("gather", "own part", "each at root", {"rooted": True, "has_parts": True, "beginning": ONLY_OWN}),
        ("all_gather", "own part", "each", {"has_parts": True, "beginning": ONLY_OWN}),
        ("reduce_scatter", "own", "all in own part", {"reduces": True, "has_parts": True}),
        ("all_to_all", "own", "each", {"has_parts": True, "moves": True}),
        ("barrier", "own", "all", {"repeats": True}),
    )
}


def find_spec(name: str) -> Spec:
    """Return the spec of a collective. Raise InputError with suggestions for an unknown name."""
    return SPECS[check_known("collective", name, SPECS)]


def item_bytes(dtype: str) -> int:
    """Return the size of one element in bytes. Raise InputError for an unknown data type.

    >>> item_bytes("bfloat16")
    2
    """
    value: object = dtype
    if not isinstance(value, str):
        name = getattr(dtype, "__name__", str(dtype)).rpartition(".")[2]
        check_text("dtype", dtype, name if name in ITEM_BYTES else "float32")
    return ITEM_BYTES[check_known("dtype", dtype, ITEM_BYTES)]


def check_op(op: str, dtype: str) -> None:
    """Raise InputError for an unknown ``op`` or ``dtype``, and for the mean of integers."""
    check_known("op", op, OPS)
    item_bytes(dtype)
    if op == "mean" and dtype not in FLOATING:
        raise InputError(f"op 'mean' requires a floating-point dtype, not {quote(dtype)}")
