"""Queues, locks and other ``multiprocessing`` objects that virtual ranks share, and that block in virtual time."""

import multiprocessing
import pickle
import queue
import threading
from collections import deque
from collections.abc import Callable
from multiprocessing.context import BaseContext
from typing import Any, ClassVar

import torch

from virtual.process.replaced import Replaced
from virtual.ranks.rank import Rank, RankWait
from virtual.ranks.sites import find_site, is_asked_by_program
from virtual.ranks.timing import Act
from virtual.ranks.world import VirtualWorld

POLLING_S = 1800.0  # virtual time after which ranks that poll are reported as stuck
POLL_S = 0.01  # minimum time of a poll


def install_shared_objects(world: VirtualWorld, replaced: Replaced) -> None:
    """Replace the program's multiprocessing objects with virtual ones. Libraries keep the real objects."""
    for owner in (BaseContext, multiprocessing, torch.multiprocessing):
        for kind, made in KINDS.items():
            replaced.put(owner, kind, _choosing(world, made, getattr(owner, kind)))


def _choosing(world: VirtualWorld, made: "type[SharedObject]", real: Any) -> Any:
    def make(*arguments: Any, **named: Any) -> Any:
        if world.me() is None or not is_asked_by_program(("context.py", "sharedctypes.py"), or_tests=True):
            return real(*arguments, **named)
        if arguments and isinstance(arguments[0], BaseContext):
            arguments = arguments[1:]
        return made(world, *arguments, **named)

    return make


class SharedObject:
    """An object that all ranks share, with the methods of its ``multiprocessing`` type. Pickling passes a reference.

    A wait with a timeout ends when no rank can run, so that programs can poll. After ``POLLING_S`` seconds of virtual
    time, such a wait is reported as a hang instead.
    """

    def __init__(self, world: VirtualWorld) -> None:
        self._world, self._place = world, len(MADE)
        self.title = type(self).__name__.removeprefix("Virtual")
        MADE.append(self)

    def __reduce__(self) -> Any:
        return _find, (self._place,)

    def _block(self, method: str, is_ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until ``is_ready()`` holds. Return False if the timeout passes first."""
        caller = self._world.caller()
        gives_up = timeout is not None and caller.now < POLLING_S
        waiting = RankWait(f"{self.title}.{method}()", find_site(), gives_up=gives_up)
        self._world.wait_until(caller, is_ready, waiting)
        if is_ready() or timeout is None:
            return True
        caller.spend(max(timeout, POLL_S))
        return False

    def _changed(self) -> None:
        self._world.progress += 1
        self._world.poke(*self._world.ranks)


class VirtualQueue(SharedObject):
    """A queue without a size limit. Items are pickled, as between processes."""

    def __init__(self, world: VirtualWorld, maxsize: int = 0) -> None:
        super().__init__(world)
        self._items = deque[bytes]()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(pickle.dumps(item))
        self._changed()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not (self._block("get", lambda: bool(self._items), timeout) if block else self._items):
            raise queue.Empty
        return pickle.loads(self._items.popleft())  # pickled by this process

    put_nowait = put

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)

    def full(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: the queue has no pipe or thread to close."""

    join_thread = cancel_join_thread = task_done = join = close


class VirtualSemaphore(SharedObject):
    """A semaphore. If ``is_reentrant`` is True, the rank that acquired it can acquire it again."""

    is_bounded: ClassVar[bool] = False  # raises ValueError if it is released more often than acquired
    is_reentrant: ClassVar[bool] = False

    def __init__(self, world: VirtualWorld, value: int = 1) -> None:
        super().__init__(world)
        self._free = self._most = value
        self._holder: Rank | None = None  # the last rank that acquired it
        self._times = 0

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        caller = self._world.caller()
        if not (self.is_reentrant and self._holder is caller):
            if not (self._block("acquire", lambda: self._free > 0, timeout) if block else self._free):
                return False
            self._free -= 1
        self._holder, self._times = caller, self._times + 1
        return True

    def release(self) -> None:
        if self.is_bounded and self._free >= self._most:
            raise ValueError("semaphore or lock released too many times")
        self._times -= 1
        if not (self.is_reentrant and self._times):
            self._free, self._holder = self._free + 1, None
            self._changed()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *raised: object) -> None:
        self.release()


class VirtualBoundedSemaphore(VirtualSemaphore):
    is_bounded = True


class VirtualLock(VirtualBoundedSemaphore):
    """A lock that at most one rank holds."""


class VirtualRLock(VirtualLock):
    is_reentrant = True


class VirtualCondition(SharedObject):
    """A lock that a rank releases while it waits for a notification."""

    def __init__(self, world: VirtualWorld, lock: VirtualLock | None = None) -> None:
        super().__init__(world)
        self._lock = lock or VirtualRLock(world)
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting: dict[object, None] = {}  # a token for each wait that was not notified

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *raised: object) -> None:
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        token = object()
        self._waiting[token] = None
        self.release()
        is_notified = self._block("wait", lambda: token not in self._waiting, timeout)
        self._waiting.pop(token, None)
        self.acquire()
        return is_notified

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        while not (value := predicate()) and self.wait(timeout):
            pass
        return value or predicate()

    def notify(self, n: int = 1) -> None:
        for token in [*self._waiting][:n]:
            del self._waiting[token]
        self._changed()

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class VirtualBarrier(SharedObject, threading.Barrier):
    """A ``threading.Barrier`` for a given number of ranks, with a condition that the ranks share."""

    def __init__(
        self, world: VirtualWorld, parties: int, action: Act | None = None, timeout: float | None = None
    ) -> None:
        SharedObject.__init__(self, world)
        threading.Barrier.__init__(self, parties, action, timeout)  # type: ignore[arg-type]  # its result is ignored
        self._cond: Any = VirtualCondition(world)
        self._cond.title = self.title


class VirtualEvent(SharedObject, threading.Event):
    def __init__(self, world: VirtualWorld) -> None:
        SharedObject.__init__(self, world)
        threading.Event.__init__(self)
        self._cond: Any = VirtualCondition(world)
        self._cond.title = self.title


KINDS: dict[str, type[SharedObject]] = {
    "Queue": VirtualQueue,
    "SimpleQueue": VirtualQueue,
    "JoinableQueue": VirtualQueue,
    "Semaphore": VirtualSemaphore,
    "BoundedSemaphore": VirtualBoundedSemaphore,
    "Lock": VirtualLock,
    "RLock": VirtualRLock,
    "Event": VirtualEvent,
    "Barrier": VirtualBarrier,
    "Condition": VirtualCondition,
}
MADE: list[SharedObject] = []  # in this process, by the index that is pickled instead


def _find(place: int) -> SharedObject:
    return MADE[place]
