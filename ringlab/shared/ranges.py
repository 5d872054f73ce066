"""Parse and format world sizes and buffer sizes on the command line, such as ``1-8,16`` or ``-b 1K -e 16M``."""

import re
from collections.abc import Sequence
from math import inf

from collectives.checks import check_number, check_text
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.units import parse_size

MOST_CASES = 6_000  # sizes, values, cells, machines or files of one command


def parse_world_sizes(text: str, option: str = "--ranks", most: int = 256) -> list[int]:
    """Parse world sizes such as ``1-8,16`` and return them sorted. Raise InputError unless all are from 1 to ``most``.

    >>> parse_world_sizes("16,1-4")
    [1, 2, 3, 4, 16]
    """
    sizes: set[int] = set()
    for part in check_text(option, text, "1-8,16").split(","):
        first, dash, last = part.strip().partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            raise InputError(f"{option} {quote(text)}: {quote(part)} is not a number or a range such as 1-8")
        if dash and int(last) < int(first):
            raise InputError(f"{option} {quote(text)}: {part.strip()} is reversed; write {last}-{first}")
        if int(last if dash else first) > most:
            raise InputError(f"{option} {quote(text)}: world sizes must be between 1 and {most}")
        sizes.update(range(int(first), int(last if dash else first) + 1))
    if not sizes or min(sizes) < 1:
        raise InputError(f"{option} {quote(text)}: world sizes must be between 1 and {most}")
    return sorted(sizes)


def format_world_sizes(world_sizes: Sequence[int]) -> str:
    """Format sorted world sizes as a list with ranges.

    >>> format_world_sizes([3, 5, 6, 7, 9, 10])
    '3, 5-7, 9, 10'
    """
    runs: list[list[int]] = []
    for size in world_sizes:
        if runs and size == runs[-1][-1] + 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(parts)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18  # int() refuses thousands of digits


def grow_sizes(begin: str, end: str, factor: float) -> list[int]:
    """Return sizes in bytes from ``begin`` to ``end``, each ``factor`` times the previous one, as in nccl-tests.

    Raises InputError if ``begin`` is not positive, if the sizes do not grow, or if there are too many.

    >>> grow_sizes("1K", "20K", 4)
    [1024, 4096, 16384]
    """
    first, last = parse_short_size(begin, "-b"), parse_short_size(end, "-e")
    if not 1 < check_number("-f", factor) < inf or not 0 < first <= last:
        raise InputError(
            f"-b {begin} -e {end} -f {factor:g}: -b must be positive, -e at least -b, and -f finite and greater than 1"
        )
    sizes = [first]
    while sizes[-1] < last and len(sizes) <= MOST_CASES:
        sizes.append(max(sizes[-1] + 1, int(min(sizes[-1] * factor, last + 1))))
    sizes = [size for size in sizes if size <= last]
    if len(sizes) > MOST_CASES:
        raise InputError(f"-f {factor:g}: more than {MOST_CASES:,} sizes; use a larger factor")
    return sizes


def parse_short_size(text: str, option: str) -> int:
    """Parse a size such as ``8``, ``32K``, ``1M`` (as in nccl-tests) or ``1 MiB``, and return it in bytes.

    Raise InputError if the text is not a size.

    >>> parse_short_size("32K", "-b"), parse_short_size("32 KiB", "-b")
    (32768, 32768)
    """
    short = re.fullmatch(r"(\d+)([KMG]?)", check_text(option, text, "32K").strip(), re.IGNORECASE)
    if short is not None:
        return int(short[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[short[2].upper()]
    try:
        return parse_size(text)
    except InputError as error:
        raise InputError(f"{option} {text}: {error}; 32K, 1M and 2G are powers of two, as in nccl-tests") from error
