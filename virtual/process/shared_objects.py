"""Queues, locks and other objects of ``multiprocessing`` that ranks share. Ranks wait for them in virtual time."""

import multiprocessing
import pickle
import queue
from collections import deque
from collections.abc import Callable
from multiprocessing.context import BaseContext
from threading import BrokenBarrierError
from typing import Any

import torch

from virtual.process.replaced import Replaced
from virtual.ranks.rank import Rank, RankWait
from virtual.ranks.sites import find_site, is_asked_by_program_or_tests
from virtual.ranks.world import Act, VirtualWorld

POLLING_S = 1800.0  # virtual time after which ranks that poll are reported as stuck
POLL_S = 0.01  # minimum time of a poll
TOO_OFTEN = "semaphore or lock released too many times"  # multiprocessing's message


def install_shared_objects(world: VirtualWorld, replaced: Replaced) -> None:
    """Replace the program's multiprocessing objects with virtual ones. Libraries keep the real objects."""
    for owner in (BaseContext, multiprocessing, torch.multiprocessing):
        for kind, made in KINDS.items():
            replaced.put(owner, kind, _choosing(world, made, getattr(owner, kind)))


def _choosing(world: VirtualWorld, made: "type[SharedObject]", real: Any) -> Any:
    def make(*arguments: Any, **named: Any) -> Any:
        if world.me() is None or not is_asked_by_program_or_tests(("context.py", "sharedctypes.py")):
            return real(*arguments, **named)
        if arguments and isinstance(arguments[0], BaseContext):
            arguments = arguments[1:]
        return made(world, *arguments, **named)

    return make


class SharedObject:
    """An object that all ranks share; pickling it passes a reference. It has the methods of ``multiprocessing``.

    A wait with a timeout ends if no other event can happen, so that a program can poll a queue until all work is done.
    """

    def __init__(self, world: VirtualWorld) -> None:
        self._world = world
        self._place = len(MADE)
        MADE.append(self)

    def __reduce__(self) -> Any:
        return _find, (self._place,)

    def _caller(self) -> Rank:
        caller = self._world.me()
        assert caller is not None, "a thread of the runtime"
        return caller

    def _wait(self, method: str, is_ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait for a condition. Return False if the timeout passes first."""
        operation, caller = f"{type(self).__name__.removeprefix('Virtual')}.{method}()", self._caller()
        gives_up = timeout is not None and caller.now < POLLING_S
        self._world.wait_until(caller, is_ready, RankWait(operation, find_site(), gives_up=gives_up))
        if is_ready() or timeout is None:
            return True
        caller.spend(max(timeout, POLL_S))
        return False

    def _changed(self) -> None:
        self._world.progress += 1
        self._world.poke_all(self._world.ranks)


class VirtualQueue(SharedObject):
    """A queue without a size limit. Items are pickled, as between processes."""

    def __init__(self, world: VirtualWorld, maxsize: int = 0) -> None:
        super().__init__(world)
        self._items = deque[bytes]()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(pickle.dumps(item))
        self._changed()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not block and not self._items:
            raise queue.Empty
        if not self._wait("get", lambda: bool(self._items), timeout):
            raise queue.Empty
        return pickle.loads(self._items.popleft())  # pickled by this process

    def put_nowait(self, item: Any) -> None:
        self.put(item)

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
    """A semaphore that a given number of ranks can hold."""

    def __init__(self, world: VirtualWorld, value: int = 1) -> None:
        super().__init__(world)
        self._free = value

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        if not block and not self._free:
            return False
        if not self._wait("acquire", lambda: self._free > 0, timeout):
            return False
        self._free -= 1
        return True

    def release(self) -> None:
        self._free += 1
        self._changed()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *raised: object) -> None:
        self.release()


class VirtualBoundedSemaphore(VirtualSemaphore):
    """A semaphore that raises ValueError if it is released more often than acquired."""

    def __init__(self, world: VirtualWorld, value: int = 1) -> None:
        super().__init__(world, value)
        self._most = value

    def release(self) -> None:
        if self._free >= self._most:
            raise ValueError(TOO_OFTEN)
        super().release()


class VirtualLock(VirtualSemaphore):
    """A lock that one rank holds. If ``held_again``, its holder can acquire it again."""

    held_again = False

    def __init__(self, world: VirtualWorld) -> None:
        super().__init__(world)
        self._holder: Rank | None = None
        self._times = 0

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        caller = self._caller()
        if not (self.held_again and self._holder is caller) and not super().acquire(block, timeout):
            return False
        self._holder, self._times = caller, self._times + 1
        return True

    def release(self) -> None:
        if not self._times:
            raise ValueError(TOO_OFTEN)
        self._times -= 1
        if not self._times:
            self._holder = None
            super().release()


class VirtualRLock(VirtualLock):
    """A lock that its holder can acquire again."""

    held_again = True


class VirtualEvent(SharedObject):
    """A flag that ranks wait for."""

    def __init__(self, world: VirtualWorld) -> None:
        super().__init__(world)
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        self._changed()

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._wait("wait", self.is_set, timeout)


class VirtualBarrier(SharedObject):
    """A barrier for a given number of ranks."""

    def __init__(
        self, world: VirtualWorld, parties: int, action: Act | None = None, timeout: float | None = None
    ) -> None:
        super().__init__(world)
        self.parties, self._action = parties, action
        self.n_waiting, self.broken = 0, False
        self._round = list[bool]()  # empty while ranks wait, then whether they pass

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all ranks have arrived. Return the number of ranks that arrived earlier.

        Raises BrokenBarrierError after ``abort``, and if the barrier is reset during the wait.
        """
        if self.broken:
            raise BrokenBarrierError
        place, mine = self.n_waiting, self._round
        self.n_waiting += 1
        if self.n_waiting == self.parties:
            if self._action is not None:
                self._action()
            self._end_round(True)
        self._wait("wait", lambda: bool(mine))
        if not mine[0]:
            raise BrokenBarrierError
        return place

    def abort(self) -> None:
        self.broken = True
        self._end_round(False)

    def reset(self) -> None:
        self.broken = False
        self._end_round(False)

    def _end_round(self, they_pass: bool) -> None:
        self._round.append(they_pass)
        self.n_waiting, self._round = 0, []
        self._changed()


class VirtualCondition(SharedObject):
    """A lock that a rank releases while it waits for a notification."""

    def __init__(self, world: VirtualWorld, lock: VirtualLock | None = None) -> None:
        super().__init__(world)
        self._lock = lock or VirtualRLock(world)
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting = deque[list[bool]]()  # for each wait, a list with a flag: whether it is over

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *raised: object) -> None:
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        box = [False]
        self._waiting.append(box)
        self.release()
        self._wait("wait", lambda: box[0])
        return self.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        while not (value := predicate()):
            self.wait()
        return value

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            self._waiting.popleft()[0] = True
        self._changed()

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


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
