"""Check arguments: a wrong type raises the same error as a wrong value."""

from collections.abc import Collection, Iterable
from math import inf
from numbers import Integral, Real
from pathlib import Path
from sys import float_info
from typing import Any, Literal, TypeGuard

from collectives.errors import InputError
from collectives.quoting import quote, suggest

MOST_SECONDS = 1e15  # limit of a time in a file, so that sums and ratios of times stay within floats
MOST_FLOPS = 4 * 10**18  # limit of one layer and sample: attention over four million tokens
MOST_COUNTED = 10**15  # limit of a file's parameters, bytes or samples: a thousand times the largest models
MOST_RANKS = 65_536  # limit of a cluster in a file, and of a list of world sizes


def check_whole_number(name: str, value: object, at_least: int | None = None, instead: str = "") -> int:
    """Return ``value`` as an int. Raise InputError for a bool, another type, or an integer below ``at_least``.

    ``name`` is the argument's name in the message. ``instead`` names other accepted values, such as " or None".

    >>> check_whole_number("world_size", 8, at_least=1)
    8
    >>> check_whole_number("nbytes", "8 MiB", at_least=0)
    Traceback (most recent call last):
    collectives.errors.InputError: nbytes must be a non-negative integer, not '8 MiB'
    """
    number = None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)
    if number is None or (at_least is not None and number < at_least):
        kinds = {None: "an integer", 0: "a non-negative integer", 1: "a positive integer"}
        wanted = kinds.get(at_least, f"an integer of at least {at_least}")
        raise InputError(f"{name} must be {wanted}{instead}, not {quote(value)}")
    return number


def check_number(
    name: str, value: object, unit: str = "", above: Literal[0] | None = None, at_least: Literal[0] | None = None
) -> float:
    """Return ``value`` as a float. Raise InputError if it is not a number.

    If ``above`` is 0, the number must be positive and finite. If ``at_least`` is 0, it must be non-negative and finite.
    The message contains ``unit``.

    >>> check_number("fails_at", "5 ms", "seconds")
    Traceback (most recent call last):
    collectives.errors.InputError: fails_at must be a number of seconds, not '5 ms'
    """
    try:
        number = None if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:  # the integer is larger than any float
        number = None
    if number is not None and above is not None and not above < number < inf:
        number = None
    if number is not None and at_least is not None and not at_least <= number < inf:
        number = None
    if number is None:
        sign = "positive " if above is not None else "non-negative " if at_least is not None else ""
        raise InputError(f"{name} must be a {sign}number{unit and f' of {unit}'}, not {quote(value)}")
    return number


def is_finite_number(value: object) -> TypeGuard[float]:
    """Return whether ``value`` is an int or float in the range of finite floats. A bool does not count as a number.

    >>> is_finite_number(1), is_finite_number(10**400), is_finite_number(True)
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max


def check_sequence(name: str, value: object, of: str) -> list[Any]:
    """Return the elements of an iterable as a list. Raise InputError if ``value`` is a string or not iterable.

    The message contains ``name``, the name of the argument, and ``of``, a plural noun for the elements.

    >>> check_sequence("sizes", (size for size in (1, 2)), of="sizes"), check_sequence("sizes", [], of="sizes")
    ([1, 2], [])
    >>> check_sequence("hosts", "h0", of="nodes")
    Traceback (most recent call last):
    collectives.errors.InputError: hosts must be a list of nodes, not 'h0'
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{name} must be a list of {of}, not {quote(value)}")
    return list(value)


def check_callable(name: str, value: object, of: str) -> None:
    """Raise InputError if ``value`` is neither callable nor None. ``of`` describes the arguments of the callable."""
    if value is not None and not callable(value):
        raise InputError(f"{name} must be a function of {of}, not {quote(value)}")


def check_text(name: str, value: object, example: str) -> str:
    """Return ``value``. Raise InputError if it is not a string. The message contains ``example``, a valid value."""
    if not isinstance(value, str):
        raise InputError(f"{name} must be a string such as {quote(example)}, not {quote(value)}")
    return value


def check_known(name: str, value: Any, known: Collection[str], more: str = "") -> Any:
    """Return ``value`` if it is one of the ``known`` names. Otherwise, raise InputError and suggest similar names.

    >>> check_known("precision", "fp7", ["float32", "bf16"])
    Traceback (most recent call last):
    collectives.errors.InputError: unknown precision 'fp7'; choose one of float32, bf16
    """
    if not isinstance(value, str) or value not in known:
        raise InputError(f"unknown {name} {quote(value)}; {suggest(str(value), known, more)}")
    return value


def check_bool(name: str, value: object) -> None:
    """Raise InputError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, not {quote(value)}")


def check_printable(name: str, value: str) -> str:
    r"""Return ``value`` if all its characters are printable. Raise InputError otherwise.

    >>> check_printable("title", "two\u202eracks")
    Traceback (most recent call last):
    collectives.errors.InputError: title must contain only printable characters, not 'two\u202eracks'
    """
    if not value.isprintable():
        raise InputError(f"{name} must contain only printable characters, not {quote(value)}")
    return value


def check_path(name: str, value: object) -> Path:
    """Return ``value`` as a Path. Raise InputError unless it is a Path or a string."""
    if not isinstance(value, Path | str):
        raise InputError(f"{name} must be the name of a file or directory, not {quote(value)}")
    return Path(value)


def check_ranks(world_size: object, root: object = 0) -> None:
    """Raise InputError unless ``world_size`` is a positive integer and ``root`` is a rank below ``world_size``.

    >>> check_ranks(4, root=4)
    Traceback (most recent call last):
    collectives.errors.InputError: root must be a rank from 0 to 3, not 4
    """
    ranks = check_whole_number("world_size", world_size, at_least=1)
    if not 0 <= check_whole_number("root", root) < ranks:
        raise InputError(f"root must be a rank from 0 to {ranks - 1}, not {root}")


def check_cluster(cluster: object, kind: type) -> None:
    """Raise InputError if ``cluster`` is not an instance of ``kind``, the expected cluster class."""
    if isinstance(cluster, type) or not isinstance(cluster, kind):
        ranks = cluster if type(cluster) is int and cluster > 0 else 2
        raise InputError(f"cluster must be a cluster such as simcomm.this_machine({ranks}), not {quote(cluster)}")
