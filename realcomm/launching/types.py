"""The types of what a caller passes to a launch: the work, what receives its progress, and the ranks."""

from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any, Protocol, runtime_checkable

from realcomm.launching.namespaces import HostNamespaces

Worker = Callable[..., Any] | str  # (rank, world_size, *args): what every rank calls, or its name, "module:function"
Progress = Callable[[int, int, int, str], None]  # (rank, done, total, text): called in the launcher


def find_worker(worker: Worker) -> Callable[..., Any]:
    """Return the function that every rank calls; the module of one that is named is imported here, in the rank.

    >>> find_worker("math:hypot")(3, 4)
    5.0
    """
    found: Callable[..., Any] = resolve_name(worker) if isinstance(worker, str) else worker
    return found


@runtime_checkable
class RankNetwork(Protocol):
    """A network that ranks of one launch use in place of the loopback: ``realcomm.emulate`` makes them."""

    @property
    def namespaces(self) -> Sequence[HostNamespaces]: ...  # of each rank
    def mark(self) -> None: ...  # count what goes wrong from here on
    def check(self) -> None: ...  # raise RunFailed if something has


@runtime_checkable
class Ranks(Protocol):
    """What a launch needs of a cluster: how many ranks, and the name of each one's host.

    ``simcomm``'s clusters have both. The processes all run on this machine, whatever the hosts are called.
    """

    @property
    def world_size(self) -> int: ...

    @property
    def hosts(self) -> Sequence[str]: ...
