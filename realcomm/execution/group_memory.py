"""Cache objects for a process group until the group is destroyed.

The cache refers to groups weakly. If a variable keeps a destroyed group alive, the group's objects remain in the cache
until the first object of another group is cached.
"""

import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch.distributed as dist

from realcomm.launching.group import group_or_default, own_device, reach_other_hosts

T = TypeVar("T")
GroupReference = Callable[[], dist.ProcessGroup]

_kept: weakref.WeakKeyDictionary[dist.ProcessGroup, dict[Hashable, Any]] = weakref.WeakKeyDictionary()


def keep_for(group: dist.ProcessGroup, key: Hashable, make: Callable[[], T]) -> T:
    """Return the cached object of ``group`` and ``key``; create it with ``make()`` if it is missing.

    The object is cached until the group is destroyed. It must not refer to the group directly, only through ``refer``.
    """
    objects = _kept.get(group)
    if objects is None:
        _forget_destroyed()
        objects = _kept[group] = {}
    if key not in objects:
        objects[key] = make()
    cached: T = objects[key]
    return cached


class Recent(Generic[T]):
    """A cache of the ``MOST`` most recently used objects.

    All ranks of a group must request the same keys in the same order. They then also create each object at the same
    time, as NCCL requires.
    """

    MOST = 16  # executors, each with its scratch and staging

    def __init__(self) -> None:
        self._made: dict[Hashable, T] = {}  # in order of use

    def find(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the object of ``key``; create it if it is missing."""
        cached = self._made.pop(key) if key in self._made else make()
        self._made[key] = cached
        if len(self._made) > self.MOST:
            del self._made[next(iter(self._made))]
        return cached


def refer(group: dist.ProcessGroup) -> GroupReference:
    """Return a function that returns ``group``, or raises RuntimeError if the group no longer exists.

    The function does not keep the group alive.
    """
    reference, name = weakref.ref(group), group.group_name

    def find() -> dist.ProcessGroup:
        group = reference()
        if group is None:
            raise RuntimeError(f"the process group {name} has been destroyed; create a new group and new executors")
        return group

    return find


def is_destroyed(group: dist.ProcessGroup) -> bool:
    """Return whether ``destroy_process_group`` has destroyed a group."""
    try:
        dist.get_backend(group)
    except ValueError:
        return True
    return False


def _forget_destroyed() -> None:
    for group in list(_kept):
        if is_destroyed(group):
            del _kept[group]


def host_group() -> dist.ProcessGroup:
    """Return the default group if it uses CPUs, otherwise a gloo group of the same ranks. All ranks must call this."""
    group = group_or_default()
    return group if own_device().type == "cpu" else keep_for(group, "host group", _make_host_group)


def host_barrier() -> None:
    """Block this process until all ranks have called this.

    The GPUs are not involved: an NCCL barrier would occupy GPUs on which other ranks still compute.
    """
    dist.barrier(host_group())


def _make_host_group() -> dist.ProcessGroup:
    reach_other_hosts()
    group = dist.new_group(backend="gloo")
    assert isinstance(group, dist.ProcessGroup)
    return group
