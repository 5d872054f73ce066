"""Limit the memory of schedules and simulations to one gigabyte, or to the size in RINGLAB_MEMORY.

Objects are counted before they are allocated, and the count is compared with a constant of ``Gigabyte``. Therefore, the
limit is the same on every machine.
"""

import os

from collectives.errors import InputError, TooLarge
from collectives.quoting import quote
from collectives.units import format_size, parse_size

SHORTER_ROUTES = "ask for an algorithm whose ranks are neighbors in this network, such as ring"
MEMORY_KEY, USUAL_MEMORY = "RINGLAB_MEMORY", 1 << 30  # environment variable; default in bytes


class Gigabyte:
    """The maximum number of objects of each kind in one gigabyte, computed from measured object sizes."""

    LINKS = 450_000  # full-duplex links of a network, with the objects derived from them
    PAIRS = 3_600_000  # pairs of ranks that send to each other, with their routes
    ROUTED = 1_000_000  # pairs of ranks whose messages are analyzed
    HOPS = 10_000_000  # links of all routes, with the objects derived from them
    NAMED = 4_000_000  # links of routes that are stored as names of nodes
    TOGETHER = 13_000_000  # pairs of links that belong to the same route, over all routes
    FOLLOWED = 20_000_000  # chunks of all ranks in a proof: half a gigabyte
    TABLED = 4_200_000  # operations of all ranks that are listed and simulated
    WRITTEN = TABLED // 2  # messages of a schedule that is listed for the simulation: up to 500 bytes each
    MESSAGES = 3_000_000  # messages that are simulated one by one: 100 to 300 bytes each
    RECORDED = 2_500_000  # recorded messages: 200 to 400 bytes each
    SEGMENTS = 6_000_000  # TCP segments in flight at once: 150 bytes each
    PLANNED = 600_000  # messages over TCP that are ordered one by one: 1.6 kB each
    TASKS = 400_000  # tasks of a step's timeline: half a kilobyte each, ten seconds in total
    YIELDED = 8_000_000  # operations that a user's file yields: 20 bytes each in the worker, 100 here
    ENTRIES = 1_000_000  # entries of a file (lines, rows, elements), each an object of up to a kilobyte
    ROWS = 4_000_000  # rows of columns: 40 bytes each, and twice as much while they are read
    PICTURES = 4_000_000  # images in a directory: a quarter of a kilobyte each; ImageNet has 1,281,167
    SIMPY = 500_000  # messages of the reference engine: half a gigabyte and half a minute, as in a ring of 500 ranks


def allowed(most: int) -> int:
    """Return the number of objects that fit into the memory limit, if ``most`` objects fit into one gigabyte.

    Raise InputError if RINGLAB_MEMORY is not a size, or is too small for a single object.
    """
    text = os.environ.get(MEMORY_KEY)
    if text is None:
        return most
    try:
        allowance = int(most * (parse_size(text) / USUAL_MEMORY))
    except InputError as error:
        raise InputError(f"{MEMORY_KEY}: {error}") from error
    if allowance < 1:
        raise InputError(f"{MEMORY_KEY} is too small ({quote(text)}); set a size such as 4 GiB")
    return allowance


def check_fits(number: int, most: int, excess: str, way: str = "") -> None:
    """Raise TooLarge if ``number`` objects exceed the memory limit. ``most`` objects fit into one gigabyte.

    ``excess`` begins the message and states the number. If ``way`` is set, the message names it as the first remedy.

    >>> check_fits(300, 100, "its 300 messages are too many")
    Traceback (most recent call last):
    ...
    collectives.errors.TooLarge: its 300 messages are too many; the limit is 100; ask for fewer ranks (--set \
cluster.hosts=N), or allow more memory (RINGLAB_MEMORY="3 GiB")
    """
    limit = allowed(most)
    if number > limit:
        raise TooLarge(f"{excess}; the limit is {limit:,}; {ways_out(number / limit, way)}")


def check_read(where: object, number: int, most: int, unit: str) -> None:
    """Raise TooLarge if a file has more entries than fit into the memory limit. ``unit`` names them in the message."""
    if number > (limit := allowed(most)):
        raise TooLarge(f"{where}: contains more than {limit:,} {unit}; pass a smaller file, or {more_memory(2)}")


def more_memory(times: float) -> str:
    """Return advice to raise the memory limit by a factor of ``times``. The new limit is rounded up to whole GiB."""
    memory = format_size(-(-allowed(USUAL_MEMORY) * times // (1 << 30)) * (1 << 30))
    return f'allow more memory ({MEMORY_KEY}="{memory}")'


def ways_out(times: float, way: str = "") -> str:
    """Return remedies for work that needs ``times`` times the allowed memory, starting with ``way`` if it is set."""
    usual = f"ask for fewer ranks (--set cluster.hosts=N), or {more_memory(times)}"
    return f"{way}, or {usual.removeprefix('ask for ') if way.startswith('ask for ') else usual}" if way else usual
