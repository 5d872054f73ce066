"""Where a rank is in the user's program: the file and line of the innermost frame that is the user's."""

import linecache
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple

OURS = Path(__file__).resolve().parents[2]  # the folder of Ringlab's packages
OWN_PACKAGES = ("virtual", "planner", "replay", "simcomm", "collectives", "scenarios", "ringlab")
_LIBRARIES = tuple(
    dict.fromkeys(
        str(path) + os.sep
        for path in [
            *(OURS / name for name in OWN_PACKAGES),
            Path(threading.__file__).parent,
            *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")),
        ]
    )
)


class CallSite(NamedTuple):
    """A line of the user's program.

    >>> str(CallSite("/home/ada/train.py", 12))
    'train.py:12'
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"

    @property
    def text(self) -> str:
        """The line itself, without the blanks around it; empty where it cannot be read."""
        return linecache.getline(self.file, self.line).strip()


_OURS = str(OURS / "virtual") + os.sep
NOWHERE = CallSite("?", 0)
WRAPPERS = ("wrapper", "_wrapped_call_impl", "_call_impl", "decorate_context")  # around functions of torch


PASSED_THROUGH = ("distributed_c10d.py", "c10d_logger.py", "_contextlib.py", "contextlib.py")


class Owner(Enum):
    """Whose a file of code is."""

    USER = "the user's program"
    OURS = "what stands for torch's backends"
    PASSED_THROUGH = "what every call of torch.distributed goes through"
    OTHER = "another library's"


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Return whether a file is the user's program, and no library."""
    return not file.startswith(("<", *_LIBRARIES))


@lru_cache(maxsize=4096)
def _find_owner(file: str) -> Owner:
    if is_users(file):
        return Owner.USER
    if file.startswith(_OURS):
        return Owner.OURS
    return Owner.PASSED_THROUGH if file.rpartition(os.sep)[2] in PASSED_THROUGH else Owner.OTHER


def find_site(frame: FrameType | None = None) -> CallSite:
    """Return the innermost line of the user's program that is being carried out in this thread."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return CallSite(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return NOWHERE


def find_asked() -> tuple[tuple[CallSite, ...], str, bool]:
    """Return the lines of ``find_stack``, the name of the function that the first calls, ``is_asked_by_program``."""
    here: FrameType | None = sys._getframe(1)
    called, is_programs = None, True
    while here is not None:
        code = here.f_code
        owner = _find_owner(code.co_filename)
        if owner is Owner.USER:
            break
        if owner is not Owner.OURS:
            is_programs = is_programs and owner is Owner.PASSED_THROUGH
            called = called if code.co_name in WRAPPERS else code
        here = here.f_back
    asked = "" if called is None else called.co_qualname.rpartition(".__")[0] or called.co_name
    if here is None:
        return (NOWHERE,), asked, False
    return find_stack(here), asked, is_programs


def find_stack(frame: FrameType | None = None) -> tuple[CallSite, ...]:
    """Return all lines of the user's program that are being carried out in this thread, the innermost first."""
    found = list[CallSite]()
    frame = frame or sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            found.append(CallSite(frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def is_asked_by_program(through: Iterable[str] = PASSED_THROUGH) -> bool:
    """Return whether the user's program itself called torch.distributed, rather than another module of torch."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OURS) and name.rpartition(os.sep)[2] not in through:
            return is_users(name)
        frame = frame.f_back
    return False


def is_called_within(folder: str) -> bool:
    """Return whether a file of a folder of torch, given as a part of its path, is being carried out in this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if folder in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
