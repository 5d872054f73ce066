"""Check arguments: a wrong type raises the same error as a wrong value."""

from collections.abc import Iterable, Sequence
from math import inf
from numbers import Integral, Real
from pathlib import Path
from sys import float_info
from typing import Any, TypeGuard

from collectives.errors import InputError
from collectives.quoting import quote

MOST_SECONDS = 1e15  # thirty million years: of a time in a file, so that sums and ratios of some stay within floats
MOST_FLOPS = 4 * 10**18  # of one layer and sample: attention over four million tokens
MOST_COUNTED = 10**15  # parameters, bytes, FLOPs or samples of one thing in a file: a thousand times the largest models
MOST_RANKS = 65_536  # that a file or a list of numbers of ranks may ask for


def check_whole_number(name: str, value: object, at_least: int | None = None, instead: str = "") -> int:
    """Return ``value`` as an int. Raise InputError unless it is an integer of at least ``at_least``; a bool is not.

    ``name`` is the argument's name in the message. ``instead`` describes other accepted values in the message.

    >>> check_whole_number("world_size", 8, at_least=1)
    8
    >>> check_whole_number("nbytes", "8 MiB", at_least=0)
    Traceback (most recent call last):
    collectives.errors.InputError: nbytes is '8 MiB'; give a whole number from 0 on
    """
    number = None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)
    if number is None or (at_least is not None and number < at_least):
        wanted = "a whole number" if at_least is None else f"a whole number from {at_least} on"
        raise InputError(f"{name} is {quote(value)}; give {wanted}{instead}")
    return number


def check_number(
    name: str, value: object, unit: str = "", above: float | None = None, at_least: float | None = None
) -> float:
    """Return ``value`` if it is a number. With ``above`` or ``at_least`` it must also be finite and in range.

    Raise InputError otherwise. ``unit`` is only used in the message.

    >>> check_number("fails_at", "5 ms", "seconds")
    Traceback (most recent call last):
    collectives.errors.InputError: fails_at is '5 ms'; give a number of seconds
    """
    try:
        number = None if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:  # of a whole number that is larger than any float
        number = None
    if number is not None and above is not None and not above < number < inf:
        number = None
    if number is not None and at_least is not None and not at_least <= number < inf:
        number = None
    if number is None:
        wanted = "a number" + (f" of {unit}" if unit else "") + (f" above {above:g}" if above is not None else "")
        wanted += f" from {at_least:g} on" if at_least is not None else ""
        raise InputError(f"{name} is {quote(value)}; give {wanted}")
    return number


def is_finite_number(value: object) -> TypeGuard[float]:
    """Return whether ``value`` is an int or float in the range of finite floats; a bool is not.

    >>> is_finite_number(1), is_finite_number(10**400), is_finite_number(True)
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max


def check_sequence(name: str, value: object, of: str) -> Sequence[Any]:
    """Return ``value`` if it is a list or tuple. Raise InputError otherwise; ``of`` names the elements.

    >>> check_sequence("hosts", "h0", of="nodes")
    Traceback (most recent call last):
    collectives.errors.InputError: hosts is 'h0'; give a list of nodes
    """
    if not isinstance(value, list | tuple):
        raise InputError(f"{name} is {quote(value)}; give a list of {of}")
    return value


def check_several(name: str, value: object, of: str) -> list[Any]:
    """Return the elements of an iterable as a list. Raise InputError for other values and for strings.

    >>> check_several("sizes", (size for size in (1, 2)), of="sizes"), check_several("sizes", [], of="sizes")
    ([1, 2], [])
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{name} is {quote(value)}; give a list of {of}")
    return list(value)


def check_callable(name: str, value: object, of: str) -> None:
    """Raise InputError unless ``value`` is callable or None; ``of`` names its arguments.

    >>> check_callable("progress", True, of="(done, total)")
    Traceback (most recent call last):
    collectives.errors.InputError: progress is True; give a function of (done, total)
    """
    if value is not None and not callable(value):
        raise InputError(f"{name} is {quote(value)}; give a function of {of}")


def check_text(name: str, value: object, example: str) -> str:
    """Return ``value`` if it is a string. Raise InputError with an ``example`` otherwise.

    >>> check_text("collective", 3, "all_reduce")
    Traceback (most recent call last):
    collectives.errors.InputError: collective is 3; give a string, for example 'all_reduce'
    """
    if not isinstance(value, str):
        raise InputError(f"{name} is {quote(value)}; give a string, for example {quote(example)}")
    return value


def check_printable(name: str, value: str) -> str:
    r"""Return ``value`` if all its characters are printable. Raise InputError otherwise.

    >>> check_printable("title", "two\u202eracks")
    Traceback (most recent call last):
    collectives.errors.InputError: title is 'two\u202eracks'; give printable characters
    """
    if not value.isprintable():
        raise InputError(f"{name} is {quote(value)}; give printable characters")
    return value


def check_path(name: str, value: object) -> Path:
    """Return ``value``, a Path or string, as a Path. Raise InputError otherwise.

    >>> check_path("path", "ring.trace.json").suffix
    '.json'
    """
    if not isinstance(value, Path | str):
        raise InputError(f"{name} is {quote(value)}; give the name of a file or folder")
    return Path(value)


def check_ranks(world_size: object, root: object = 0) -> None:
    """Raise InputError unless ``world_size`` is positive and ``root`` is one of its ranks.

    >>> check_ranks(4, root=4)
    Traceback (most recent call last):
    collectives.errors.InputError: root 4 is not one of the ranks 0..3
    """
    ranks = check_whole_number("world_size", world_size, at_least=1)
    if not 0 <= check_whole_number("root", root) < ranks:
        raise InputError(f"root {root} is not one of the ranks 0..{ranks - 1}")


def check_cluster(cluster: object, kind: type) -> None:
    """Raise InputError unless ``cluster`` is of ``kind``, such as simcomm's Cluster."""
    if isinstance(cluster, type) or not isinstance(cluster, kind):
        ranks = cluster if type(cluster) is int and cluster > 0 else 2
        raise InputError(f"cluster is {quote(cluster)}; give a cluster, for example simcomm.this_machine({ranks})")
