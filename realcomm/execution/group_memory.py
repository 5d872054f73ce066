"""What is made for a process group and kept for its next use: it ends with the group.

torch keeps a group until ``destroy_process_group``. What is kept here does not keep it longer: values refer to their
group weakly. A group that is destroyed while a variable still holds it is found when the next group comes.
"""

import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch.distributed as dist

from realcomm.launching.group import own_device, reach_other_hosts

T = TypeVar("T")
GroupReference = Callable[[], dist.ProcessGroup]

_kept: weakref.WeakKeyDictionary[dist.ProcessGroup, dict[Hashable, Any]] = weakref.WeakKeyDictionary()


def keep_for(group: dist.ProcessGroup, key: Hashable, make: Callable[[], T]) -> T:
    """Return what ``make()`` has made for ``group`` under ``key``, the same each time until the group is destroyed.

    It must not refer to the group, unless by ``refer``.
    """
    kept = _kept.get(group)
    if kept is None:
        _forget_destroyed()
        kept = _kept[group] = {}
    if key not in kept:
        kept[key] = make()
    found: T = kept[key]
    return found


class Recent(Generic[T]):
    """What was made last, under a few keys.

    All ranks of a group ask for the same in the same order, so all make one anew where one does, as NCCL needs it.
    """

    MOST = 16  # executors, each with its scratch and staging

    def __init__(self) -> None:
        self._made: dict[Hashable, T] = {}  # that of the latest key at the end

    def find(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what was made under ``key``, or is now."""
        found = self._made.pop(key) if key in self._made else make()
        self._made[key] = found
        if len(self._made) > self.MOST:
            del self._made[next(iter(self._made))]
        return found


def refer(group: dist.ProcessGroup) -> GroupReference:
    """Return a function that returns ``group`` and does not keep it; it raises RuntimeError once the group is gone."""
    reference, name = weakref.ref(group), group.group_name

    def find() -> dist.ProcessGroup:
        found = reference()
        if found is None:
            raise RuntimeError(f"the process group {name} has been destroyed; make a new one and its executors anew")
        return found

    return find


def is_destroyed(group: dist.ProcessGroup) -> bool:
    """Return whether ``destroy_process_group`` has ended a group."""
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
    """Return the default group, or where that works on GPUs one of gloo. All ranks call this together."""
    group = dist.group.WORLD
    assert group is not None
    return group if own_device().type == "cpu" else keep_for(group, "host group", _make_host_group)


def host_barrier() -> None:
    """Wait for all ranks; the GPU is left to those that still compute, where ``barrier`` of NCCL would keep it busy."""
    dist.barrier(host_group())


def _make_host_group() -> dist.ProcessGroup:
    reach_other_hosts()
    group = dist.new_group(backend="gloo")
    assert isinstance(group, dist.ProcessGroup)
    return group
