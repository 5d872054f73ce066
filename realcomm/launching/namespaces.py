"""Create and enter Linux namespaces.

A network namespace has its own interfaces, addresses and counters. A user namespace lets an unprivileged user create a
network namespace. A namespace exists while a process is inside or has its file open. Sources: namespaces(7),
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
    """A rank's network interface, and its namespaces as files under ``/proc`` in the order in which to enter them."""

    files: tuple[str, ...]
    interface: str


def unshare_network() -> bool:
    """Move this process into a new network namespace. Return whether this needed a new user namespace.

    A process that may create network namespaces, such as root's, keeps its user. Any other process must have only one
    thread, and becomes root of a new user namespace. Raise OSError if the system does not allow this.
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
    """Move this process into a new network namespace; return an open file descriptor of the namespace."""
    _call("unshare", CLONE_NEWNET)
    return os.open(OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)


def enter_network(file: int) -> None:
    """Move this process into the network namespace of an open file descriptor."""
    _call("setns", file, CLONE_NEWNET)


def enter(files: Sequence[str]) -> None:
    """Move this process into the namespaces of these files, in this order. The process must have only one thread."""
    for name in files:
        file = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("setns", file, 0)
        finally:
            os.close(file)


def _call(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        raise OSError(f"this system has no {name}: network namespaces need Linux")
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
