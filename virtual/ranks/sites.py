"""Find a rank's location in the user's program: the file and line of the program's innermost frame."""

import linecache
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import FrameType
from typing import NamedTuple

OURS = Path(__file__).resolve().parents[2]  # the folder of Ringlab's packages
OWN_PACKAGES = ("virtual", "replay", "realcomm", "simcomm", "collectives", "planner", "scenarios", "viz", "ringlab")


def find_installed() -> tuple[str, ...]:
    folders = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    with suppress(PackageNotFoundError):  # torch was built from source
        folders.add(Path(str(distribution("torch").locate_file(""))))
    return tuple(sorted({f"{path}{os.sep}" for folder in folders for path in (folder, folder.resolve())}))


def find_torch() -> Path:
    """Return torch's folder without importing torch. If torch is not installed, the folder does not exist."""
    spec = PathFinder.find_spec("torch")  # the command line's finder raises for a torch that is not installed
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else OURS / "torch"


def find_libraries() -> tuple[str, ...]:
    """Return the folders of Python, torch, Ringlab and installed packages, which contain no user code."""
    folders = [OURS / name for name in OWN_PACKAGES]
    folders += [Path(threading.__file__).parent, Path(sysconfig.get_path("stdlib")), find_torch()]
    return (
        *find_installed(),
        *sorted({f"{path}{os.sep}" for folder in folders for path in (folder, folder.resolve())}),
    )


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
        """The source text of the line without surrounding spaces, or "" if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()


OF_TORCH = str(find_torch()) + os.sep
OF_TORCHS_TESTS = os.path.join(OF_TORCH, "testing", "_internal", "")  # noqa: PTH118 - ends with a separator
_OURS = str(OURS / "virtual") + os.sep
NOWHERE = CallSite("?", 0)
WRAPPERS = ("wrapper", "_wrapped_call_impl", "_call_impl", "decorate_context")  # around functions of torch
# the public functions of torch.distributed
PASSED_THROUGH = ("distributed_c10d.py", "c10d_logger.py", "_contextlib.py", "contextlib.py", "overrides.py")


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Return whether a file belongs to the user's program rather than a library."""
    return not file.startswith(("<", *_LIBRARIES))


@lru_cache(maxsize=4096)
def find_package(file: str) -> str | None:
    """Return the installed package of a file, or None for files of torch, Python, Ringlab and the user's program."""
    folder = next((prefix for prefix in _INSTALLED if file.startswith(prefix)), None)
    name = file.removeprefix(folder or file).partition(os.sep)[0].removesuffix(".py")
    return None if not name or name in OWN_PACKAGES or file.startswith(OF_TORCH) else name


def walk_frames(frame: FrameType | None = None) -> Iterator[FrameType]:
    """Yield this thread's frames, innermost first, starting from the caller's frame or from ``frame``."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def find_caller_package() -> str | None:
    return next(filter(None, (find_package(frame.f_code.co_filename) for frame in walk_frames())), None)


def find_stack(frame: FrameType | None = None) -> tuple[CallSite, ...]:
    """Return the lines of the user's program on this thread's stack, the innermost first."""
    frames = [candidate for candidate in walk_frames(frame) if is_users(candidate.f_code.co_filename)]
    return tuple(CallSite(candidate.f_code.co_filename, candidate.f_lineno) for candidate in frames)


def find_site(frame: FrameType | None = None) -> CallSite:
    """Return the innermost line of the user's program on this thread's stack, or NOWHERE."""
    for candidate in walk_frames(frame):
        if is_users(candidate.f_code.co_filename):
            return CallSite(candidate.f_code.co_filename, candidate.f_lineno)
    return NOWHERE


def find_asked() -> tuple[tuple[CallSite, ...], str, bool]:
    """Return the program's call stack, the function that it called, and whether it called torch.distributed itself."""
    stack: tuple[CallSite, ...] = (NOWHERE,)
    called, is_programs = None, True
    for frame in walk_frames():
        code, file = frame.f_code, frame.f_code.co_filename
        if is_users(file):
            stack = find_stack(frame)
            break
        if not file.startswith(_OURS):
            is_programs = is_programs and file.rpartition(os.sep)[2] in PASSED_THROUGH
            called = called if code.co_name in WRAPPERS else code
    function_name = "" if called is None else called.co_qualname.rpartition(".__")[0] or called.co_name
    return stack, function_name, is_programs and stack[0] is not NOWHERE


def find_caller(through: Iterable[str]) -> str:
    """Return the file of the innermost frame outside of ``virtual``, skipping files with a name in ``through``."""
    files = (frame.f_code.co_filename for frame in walk_frames())
    callers = (file for file in files if not file.startswith(_OURS) and file.rpartition(os.sep)[2] not in through)
    return next(callers, "<none>")


def is_asked_by_program(through: Iterable[str] = PASSED_THROUGH, or_tests: bool = False) -> bool:
    """Return whether the user's program made the call itself or, if ``or_tests`` is True, a test of torch did."""
    caller = find_caller(through)
    return is_users(caller) or (or_tests and caller.startswith(OF_TORCHS_TESTS))


def is_posted_by_torch() -> bool:
    """Return whether torch itself made the call, rather than the program or another library."""
    return find_caller(PASSED_THROUGH).startswith(OF_TORCH)


def is_called_within(folder: str) -> bool:
    """Return whether a file whose path contains ``folder`` is on this thread's stack."""
    return any(folder in frame.f_code.co_filename for frame in walk_frames())
