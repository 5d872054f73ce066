"""Sizes of buffers as nccl-tests' options give them: from -b to -e, each -f times the one before."""

import re
from collections.abc import Iterator

from collectives.errors import InputError
from collectives.units import parse_size

MOST_SIZES = 1000


def growing(begin: str, end: str, factor: float) -> list[int]:
    """The sizes in bytes. Raises InputError for those that do not grow, or are too many."""
    first, last = read_size(begin, "-b"), read_size(end, "-e")
    if factor <= 1 or not 0 < first <= last:
        raise InputError(f"-b {begin} -e {end} -f {factor:g}: sizes must grow from -b up to -e, by a factor above 1")
    sizes = list(_growing(first, last, factor))
    if len(sizes) > MOST_SIZES:
        raise InputError(f"-f {factor:g}: that makes more than {MOST_SIZES} sizes")
    return sizes


def _growing(begin: int, end: int, factor: float) -> Iterator[int]:
    size = begin
    for _ in range(MOST_SIZES + 1):
        if size > end:
            return
        yield size
        size = max(size + 1, int(size * factor))


def read_size(text: str, option: str) -> int:
    """Bytes of ``8``, ``32K`` or ``1M`` as nccl-tests reads them, or of ``1 MiB``. Raises InputError."""
    short = re.fullmatch(r"(\d+)([KMG]?)", text.strip(), re.IGNORECASE)
    if short is not None:
        return int(short[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[short[2].upper()]
    try:
        return parse_size(text)
    except InputError as error:
        raise InputError(f"{option} {text}: {error}; 32K, 1M and 2G are read as nccl-tests reads them") from error
