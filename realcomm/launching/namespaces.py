"""Linux namespaces of a process: make private ones, and enter those of another process.

A network namespace has interfaces, addresses and counters of its own; a user namespace gives an ordinary user the right
to make one. Both are gone with the last process that is in them or has them open. Source: namespaces(7),
user_namespaces(7), setns(2).
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # <linux/sched.h>
OWN_NETWORK = Path("/proc/self/ns/net")


@dataclass(frozen=True)
class HostNamespaces:
    """Where a rank works: namespaces as files under ``/proc``, to be entered in this order, and its interface."""

    files: tuple[str, ...]
    interface: str


def unshare_network() -> bool:
    """Put this process into a network namespace of its own; return whether it also got a user namespace for it.

    A process that may make network namespaces (root) keeps its user. Another becomes root of a new user namespace, in
    which its files stay its own; it must have one thread only. Raise OSError where the kernel allows neither.
    """
    try:
        _call("unshare", CLONE_NEWNET)
        return False
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        _call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
        return True


def new_network() -> int:
    """Put this process into another new network namespace and return an open file of it."""
    _call("unshare", CLONE_NEWNET)
    return os.open(OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)


def enter_network(file: int) -> None:
    """Put this process into the network namespace of an open file."""
    _call("setns", file, CLONE_NEWNET)


def enter(files: Sequence[str]) -> None:
    """Put this process into the namespaces of these files, one after the other; it must have one thread only."""
    for name in files:
        file = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("setns", file, 0)
        finally:
            os.close(file)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library that sets ``errno``. Raise OSError with it, or where there is no such one."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        raise OSError(f"this system has no {name}: network namespaces are Linux's")
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
