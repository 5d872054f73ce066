"""Where a rank is in the user's program: the file and line of the innermost frame that is the user's."""

import linecache
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import FrameType
from typing import NamedTuple

OURS = Path(__file__).resolve().parents[2]  # the folder of Ringlab's packages
OWN_PACKAGES = ("virtual", "replay", "realcomm", "simcomm", "collectives", "planner", "scenarios", "viz", "ringlab")


def find_installed() -> tuple[str, ...]:
    """Return the folders of installed packages: this Python's, and where torch was installed."""
    folders = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    with suppress(PackageNotFoundError):  # of torch as it was built
        folders.add(Path(str(distribution("torch").locate_file(""))))
    return tuple(sorted({f"{one}{os.sep}" for folder in folders for one in (folder, folder.resolve())}))


def find_torch() -> Path:
    """Return torch's folder, without importing it; one that is not there if it isn't installed."""
    spec = PathFinder.find_spec("torch")  # the command line's finder raises for a torch that is not installed
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else OURS / "torch"


def find_libraries() -> tuple[str, ...]:
    """Return the folders in which nothing is the user's program."""
    folders = [OURS / name for name in OWN_PACKAGES]
    folders += [Path(threading.__file__).parent, Path(sysconfig.get_path("stdlib")), find_torch()]
    return (*find_installed(), *sorted({f"{one}{os.sep}" for folder in folders for one in (folder, folder.resolve())}))


_INSTALLED, _LIBRARIES = find_installed(), find_libraries()


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


OF_TORCH = str(find_torch()) + os.sep
OF_TORCHS_TESTS = os.path.join(OF_TORCH, "testing", "_internal", "")  # noqa: PTH118 - ends with a separator
_OURS = str(OURS / "virtual") + os.sep
NOWHERE = CallSite("?", 0)
WRAPPERS = ("wrapper", "_wrapped_call_impl", "_call_impl", "decorate_context")  # around functions of torch


PASSED_THROUGH = ("distributed_c10d.py", "c10d_logger.py", "_contextlib.py", "contextlib.py", "overrides.py")


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


@lru_cache(maxsize=4096)
def find_package(file: str) -> str | None:
    """Return the installed package that a file is of; None for torch, Python, Ringlab and the user's program."""
    folder = next((one for one in _INSTALLED if file.startswith(one)), None)
    if folder is None or file.startswith(OF_TORCH):
        return None
    return file.removeprefix(folder).partition(os.sep)[0].removesuffix(".py")


def find_caller_package() -> str | None:
    """Return the installed package that is being carried out in this thread, the innermost."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = find_package(frame.f_code.co_filename)
        if found is not None:
            return found
        frame = frame.f_back
    return None


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
    return is_users(find_caller(through))


def is_asked_by_program_or_tests(through: Iterable[str]) -> bool:
    """Return whether the user's program, or one of torch's classes of tests for it, made the call."""
    caller = find_caller(through)
    return is_users(caller) or caller.startswith(OF_TORCHS_TESTS)


def find_caller(through: Iterable[str]) -> str:
    """Return the file of the innermost frame that is neither Ringlab's nor in a file of the given names."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OURS) and name.rpartition(os.sep)[2] not in through:
            return name
        frame = frame.f_back
    return "<none>"


def is_posted_by_torch() -> bool:
    """Return whether a module of torch itself communicates, rather than the program or another library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if _find_owner(name) not in (Owner.OURS, Owner.PASSED_THROUGH):
            return name.startswith(OF_TORCH)
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
