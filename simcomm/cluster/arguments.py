"""Checks of the types that a user hands over: counts, numbers, ratios and lists of names."""

from collections.abc import Sequence
from math import inf
from typing import Any

from collectives.errors import InputError


def check_count(name: str, value: object, least: int = 1) -> int:
    """Return ``value`` if it is a whole number from ``least`` on. Raise InputError otherwise.

    >>> check_count("hosts", "8")
    Traceback (most recent call last):
    ...
    collectives.errors.InputError: hosts = '8'; a whole number from 1 on is needed
    """
    if type(value) is not int or value < least:
        raise InputError(f"{name} = {value!r}; a whole number from {least} on is needed")
    return value


def check_ratio(name: str, value: object) -> float:
    """Return ``value`` if it is a finite number above zero. Raise InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise InputError(f"{name} = {value!r}; a number above 0 is needed, 4 for 4:1")
    return value


def check_names(name: str, value: object) -> Sequence[Any]:
    """Return ``value`` if it is a list or tuple, as of the names of nodes. Raise InputError otherwise."""
    if not isinstance(value, list | tuple):
        raise InputError(f"{name} = {value!r}; a list is needed")
    return value


def check_number(name: str, value: object, unit: str = "") -> float:
    """Return ``value`` if it is a number, of ``unit``. Raise InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} = {value!r}; a number{unit and f' of {unit}'} is needed")
    return value
