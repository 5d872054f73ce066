"""Checks of what callers pass: a value of the wrong type is refused with the message that a wrong value gets."""

from numbers import Integral

from collectives.errors import InputError


def check_whole_number(name: str, value: object, at_least: int, instead: str = "") -> int:
    """Return ``value`` as an int. Raise InputError unless it is a whole number from ``at_least`` on; a bool is none.

    >>> check_whole_number("world_size", 8, at_least=1)
    8
    >>> check_whole_number("nbytes", "8 MiB", at_least=0)
    Traceback (most recent call last):
    collectives.errors.InputError: nbytes is '8 MiB'; give a whole number from 0 on
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise InputError(f"{name} is {value!r}; give a whole number from {at_least} on{instead}")
    return int(value)


def check_cluster(cluster: object, kind: type) -> None:
    """Raise InputError unless ``cluster`` is of ``kind``: simcomm's Cluster, or whatever says the ranks of a launch."""
    if isinstance(cluster, type) or not isinstance(cluster, kind):
        ranks = cluster if type(cluster) is int and cluster > 0 else 2
        raise InputError(f"cluster is {cluster!r}; give a cluster, for example simcomm.this_machine({ranks})")
