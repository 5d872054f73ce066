"""Confine a run to some files: hide folders, and make all other folders read-only, with a few exceptions.

This needs Linux's user and mount namespaces, which some containers forbid. Source: mount_namespaces(7),
user_namespaces(7), mount_setattr(2).

    python confinement.py    # ends with status 0 if this machine allows it
"""

import ctypes
import os
import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000  # <linux/sched.h>
MS_RDONLY, MS_BIND, MS_REC, MS_PRIVATE = 1, 4096, 16384, 1 << 18  # <linux/mount.h>
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY, SYS_MOUNT_SETATTR = -100, 0x8000, 1, 442


@dataclass(frozen=True)
class Confinement:
    """The working directory and the scratch folder of a run, and the files and folders that are hidden from it."""

    folder: str
    scratch: str
    hidden: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that point programs to the scratch folder."""
        return dict.fromkeys(("TMPDIR", "HOME"), self.scratch)

    def enter(self, *writable: str) -> bool:
        """Confine this single-threaded process. Return False if the machine does not allow confinement.

        All files are read-only afterwards, except in the scratch folder and the ``writable`` folders.
        """
        tempfile.tempdir = None  # read TMPDIR again
        try:
            _unshare()
            for path in self.hidden:
                if Path(path).is_dir():
                    _mount("tmpfs", path, "tmpfs", MS_RDONLY)
                else:
                    _mount("/dev/null", path, "", MS_BIND)
            _set_read_only("/", True, AT_RECURSIVE)
            for path in (self.scratch, *writable):
                _mount(path, path, "", MS_BIND)
                _set_read_only(path, False)
        except OSError:
            return False
        return True


def _unshare() -> None:
    user, group = os.geteuid(), os.getegid()
    _call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount("none", "/", "", MS_REC | MS_PRIVATE)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    _call("mount", os.fsencode(source), os.fsencode(target), os.fsencode(kind), ctypes.c_ulong(flags), None)


def _set_read_only(path: str, is_read_only: bool, flags: int = 0) -> None:
    bit = MOUNT_ATTR_RDONLY
    attributes = struct.pack("QQQQ", bit * is_read_only, bit * (not is_read_only), 0, 0)
    call = SYS_MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), flags, attributes, len(attributes)
    _call("syscall", *(ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in call))


def _call(name: str, *arguments: object) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        raise OSError(f"this system has no {name}")
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        if os.fork() == 0:
            os._exit(not Confinement(scratch, scratch).enter())
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
