"""How much memory what is built and simulated may take: a gigabyte, or what RINGLAB_MEMORY says.

Whoever builds something counts it, by a limit that says how many a gigabyte holds; so a refusal is the same on every
machine, and comes before the memory is taken.
"""

import os

from collectives.errors import InputError, TooLarge
from collectives.quoting import quote
from collectives.units import format_size, parse_size

SHORTER_ROUTES = "ask for an algorithm whose ranks are neighbours in this network, such as ring"
MEMORY_KEY, USUAL_MEMORY = "RINGLAB_MEMORY", 1 << 30  # in the environment; bytes


def allowed(most: int) -> int:
    """Return how many of something the memory allows of which a gigabyte holds ``most``. Raise InputError.

    >>> allowed(10_000_000)  # RINGLAB_MEMORY="2 GiB" would allow twice as many
    10000000
    """
    given = os.environ.get(MEMORY_KEY)
    if given is None:
        return most
    try:
        found = int(most * (parse_size(given) / USUAL_MEMORY))
    except InputError as error:
        raise InputError(f"{MEMORY_KEY}: {error}") from error
    if found < 1:
        raise InputError(f"{MEMORY_KEY}: {quote(given)} is too little for anything; give a size such as 4 GiB")
    return found


def check_fits(number: int, most: int, what: str, way: str = "") -> None:
    """Raise TooLarge where the memory does not allow ``number`` of something, of which a gigabyte holds ``most``.

    ``what`` says what is too large, with the number, and ``way`` a way out before those that there always are.

    >>> check_fits(300, 100, "its 300 messages are too many")
    Traceback (most recent call last):
    ...
    collectives.errors.TooLarge: its 300 messages are too many; up to 100 will do; ask for fewer ranks (--set \
cluster.hosts=N), or allow more memory (RINGLAB_MEMORY="3 GiB")
    """
    most = allowed(most)
    if number > most:
        raise TooLarge(f"{what}; up to {most:,} will do; {ways_out(number / most, way)}")


def ways_out(times: float, way: str = "") -> str:
    """Return what to do where so many ``times`` as much memory is needed: a ``way`` of the caller's, and the usual."""
    memory = format_size(-(-allowed(USUAL_MEMORY) * times // (1 << 30)) * (1 << 30))
    usual = f'ask for fewer ranks (--set cluster.hosts=N), or allow more memory ({MEMORY_KEY}="{memory}")'
    return f"{way}, or {usual.removeprefix('ask for ') if way.startswith('ask for ') else usual}" if way else usual
