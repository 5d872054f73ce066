"""Define the types of a launch's arguments: the worker, the progress callback, and the ranks."""

from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any, Protocol, runtime_checkable

from realcomm.launching.namespaces import HostNamespaces

Worker = Callable[..., Any] | str  # (rank, world_size, *args), or its name "module:function"
Progress = Callable[[int, int, int, str], None]  # (rank, done, total, text): called in the launcher


def find_worker(worker: Worker) -> Callable[..., Any]:
    """Return the worker function. If ``worker`` is a name, "module:function", import its module in this process.

    >>> find_worker("math:hypot")(3, 4)
    5.0
    """
    function: Callable[..., Any] = resolve_name(worker) if isinstance(worker, str) else worker
    return function


@runtime_checkable
class RankNetwork(Protocol):
    """A network that the ranks of a launch use instead of the loopback, such as a network of ``realcomm.emulate``."""

    @property
    def namespaces(self) -> Sequence[HostNamespaces]: ...  # one for each rank
    def mark(self) -> None: ...  # start counting problems
    def check(self) -> None: ...  # raise RunFailed if there were problems


@runtime_checkable
class Ranks(Protocol):
    """A cluster that defines the number of ranks and the name of each rank's host, such as a cluster of ``simcomm``.

    The names are only labels. All processes run on this machine.
    """

    @property
    def world_size(self) -> int: ...

    @property
    def hosts(self) -> Sequence[str]: ...
