"""Queues of multiprocessing by which ranks give results to the program that has started them."""

import multiprocessing
import pickle
import queue
from collections import deque
from multiprocessing.context import BaseContext
from typing import Any

import torch

from virtual.process.replaced import Replaced
from virtual.ranks.rank import RankWait
from virtual.ranks.sites import find_site, is_asked_by_program
from virtual.ranks.world import VirtualWorld

KINDS = ("Queue", "SimpleQueue", "JoinableQueue")


def install_queues(world: VirtualWorld, replaced: Replaced) -> None:
    """Give the program queues in whose ``get`` a rank waits as for a message. Libraries get those of processes."""
    for owner in (BaseContext, multiprocessing, torch.multiprocessing):
        for kind in KINDS:
            replaced.put(owner, kind, _choosing(world, getattr(owner, kind)))


def _choosing(world: VirtualWorld, real: Any) -> Any:
    def make(*arguments: Any, **named: Any) -> Any:
        if world.me() is not None and is_asked_by_program(("context.py",)):
            return VirtualQueue(world)
        return real(*arguments, **named)

    return make


class VirtualQueue:
    """A queue that is never full; what is put in is pickled, as for another process. A timeout is of no account."""

    def __init__(self, world: VirtualWorld) -> None:
        self._world, self._items = world, deque[bytes]()
        self._place = len(MADE)
        MADE.append(self)

    def __reduce__(self) -> Any:
        return _find, (self._place,)

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Append an item, and see who waits for it."""
        self._items.append(pickle.dumps(item))
        self._world.progress += 1
        self._world.poke_all(self._world.ranks)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the first item when one is there. Raise queue.Empty where it is not to be waited for."""
        if not block and not self._items:
            raise queue.Empty
        caller = self._world.me()
        assert caller is not None
        self._world.wait_until(caller, lambda: bool(self._items), RankWait("Queue.get()", find_site()))
        return pickle.loads(self._items.popleft())  # what this process has pickled

    def put_nowait(self, item: Any) -> None:
        """Append an item."""
        self.put(item)

    def get_nowait(self) -> Any:
        """Return the first item. Raise queue.Empty where there is none."""
        return self.get(block=False)

    def empty(self) -> bool:
        """Return whether there is no item."""
        return not self._items

    def qsize(self) -> int:
        """Return how many items there are."""
        return len(self._items)

    def full(self) -> bool:
        """Return that there is room."""
        return False

    def close(self) -> None:
        """Do nothing: there is no pipe to be closed, or thread to be waited for."""

    join_thread = cancel_join_thread = task_done = join = close


MADE: list[VirtualQueue] = []  # of this process, by the place that is pickled in its stead


def _find(place: int) -> VirtualQueue:
    return MADE[place]
