"""What each collective must achieve, apart from how an algorithm does it.

A spec speaks of *contributors*: the set of ranks whose data is summed into a chunk. ``None`` means undefined: what
stands there does not matter.
"""

from collections.abc import Callable
from typing import NamedTuple

from collectives.errors import InputError

Contributors = frozenset[int]
Contents = Callable[[int, int, int], Contributors | None]  # (rank, world_size, root) -> who is in each of its chunks


class Spec(NamedTuple):
    """Who starts with what and who ends with what; the same for every chunk of the buffer."""

    name: str
    rooted: bool  # programs take (rank, world_size, root)
    reduces: bool  # an operator (sum, mean, min, max, product) applies
    start: Contents
    end: Contents


def _own(rank: int, world_size: int, root: int) -> Contributors | None:
    return frozenset({rank})


def _root_only(rank: int, world_size: int, root: int) -> Contributors | None:
    return frozenset({root}) if rank == root else None


def _roots(rank: int, world_size: int, root: int) -> Contributors | None:
    return frozenset({root})


def _all(rank: int, world_size: int, root: int) -> Contributors | None:
    return frozenset(range(world_size))


def _all_at_root(rank: int, world_size: int, root: int) -> Contributors | None:
    return _all(rank, world_size, root) if rank == root else None


SPECS = {
    spec.name: spec
    for spec in (
        Spec("broadcast", rooted=True, reduces=False, start=_root_only, end=_roots),
        Spec("reduce", rooted=True, reduces=True, start=_own, end=_all_at_root),
        Spec("all_reduce", rooted=False, reduces=True, start=_own, end=_all),
    )
}


def find_spec(name: str) -> Spec:
    """The spec of a collective. Raises InputError that lists the known ones."""
    if name not in SPECS:
        raise InputError(f"no collective is called {name!r}; there are {', '.join(SPECS)}")
    return SPECS[name]
