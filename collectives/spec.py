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
    """The definition of a collective: the data that each rank has at the start and at the end."""

    name: str
    rooted: bool  # programs take (rank, world_size, root)
    reduces: bool  # whether an operator (sum, mean, min, max, product) applies
    start: Contents
    end: Contents
    beginning: str = "every rank starts with data"  # start of the ranks, for messages
    has_parts: bool = False  # parts differ between ranks, so the number of chunks must be a multiple of world_size
    moves: bool = False  # part r of rank i ends as part i of rank r; in other collectives, data keeps its place
    repeats: bool = False  # a contribution may count more than once

    @property
    def is_shared(self) -> bool:
        """Whether several ranks end with the same reduced data.

        >>> [name for name, spec in SPECS.items() if spec.is_shared]
        ['all_reduce']
        """
        return self.reduces and not self.rooted and not self.has_parts

    def origin(self, rank: int, part: int) -> int:
        """Return which part of a contributor's buffer becomes ``part`` of this rank's buffer."""
        return rank if self.moves else part

    def result(self, rank: int, world_size: int, root: int) -> range:
        """Return the parts that are defined on this rank at the end: all parts, only its own, or none.

        >>> find_spec("scatter").result(rank=2, world_size=4, root=0)
        range(2, 3)
        """
        own_part, next_rank = range(rank, rank + 1), (rank + 1) % world_size
        if self.end(rank, rank, world_size, root) is None:
            return range(0)
        return own_part if self.end(rank, next_rank, world_size, root) is None else range(world_size)


def _own(rank: int, part: int, world_size: int, root: int) -> Contributors | None:
    return frozenset({rank})


def _own_part(rank: int, part: int, world_size: int, root: int) -> Contributors | None:
    return frozenset({rank}) if part == rank else None


def _root_only(rank: int, part: int, world_size: int, root: int) -> Contributors | None:
    return frozenset({root}) if rank == root else None


def _roots(rank: int, part: int, world_size: int, root: int) -> Contributors | None:
    return frozenset({root})


def _own_part_of_roots(rank: int, part: int, world_size: int, root: int) -> Contributors | None:
    return frozenset({root}) if part == rank else None


def _each(rank: int, part: int, world_size: int, root: int) -> Contributors | None:
    return frozenset({part})


def _each_at_root(rank: int, part: int, world_size: int, root: int) -> Contributors | None:
    return frozenset({part}) if rank == root else None


def _all(rank: int, part: int, world_size: int, root: int) -> Contributors | None:
    return frozenset(range(world_size))


def _all_at_root(rank: int, part: int, world_size: int, root: int) -> Contributors | None:
    return frozenset(range(world_size)) if rank == root else None


def _all_in_own_part(rank: int, part: int, world_size: int, root: int) -> Contributors | None:
    return frozenset(range(world_size)) if part == rank else None


ONLY_ROOT = "only the root, rank {root}, starts with data"
ONLY_OWN = "rank r starts with part r only"

SPECS = {
    spec.name: spec
    for spec in (
        Spec("broadcast", True, False, _root_only, _roots, ONLY_ROOT),
        Spec("reduce", True, True, _own, _all_at_root),
        Spec("all_reduce", False, True, _own, _all),
        Spec("scatter", True, False, _root_only, _own_part_of_roots, ONLY_ROOT, has_parts=True),
        Spec("gather", True, False, _own_part, _each_at_root, ONLY_OWN, has_parts=True),
        Spec("all_gather", False, False, _own_part, _each, ONLY_OWN, has_parts=True),
        Spec("reduce_scatter", False, True, _own, _all_in_own_part, has_parts=True),
        Spec("all_to_all", False, False, _own, _each, has_parts=True, moves=True),
        Spec("barrier", False, False, _own, _all, repeats=True),
    )
}


def find_spec(name: str) -> Spec:
    """Return the spec of a collective. Raise InputError with suggestions for an unknown name.

    >>> find_spec("all_reduce").reduces
    True
    """
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
    """Raise InputError unless ``op`` can reduce elements of ``dtype``. A mean requires a floating-point type."""
    check_known("op", op, OPS)
    item_bytes(dtype)
    if op == "mean" and dtype not in FLOATING:
        raise InputError(f"op 'mean' requires a floating-point dtype, not {quote(dtype)}")
