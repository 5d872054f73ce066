"""Prepare the fork server before it imports anything else; see ``realcomm.launching.server``.

In other processes, importing this module has no effect. When the thread that started the server ends, even if it is
killed, the server also ends. It first removes multiprocessing's folder, which contains the folders of all launches.
"""

import atexit
import ctypes
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
FOLDER = "RINGLAB_SERVER_FOLDER"  # the environment variable that names the folder
LAUNCHER = "RINGLAB_SERVER_LAUNCHER"  # the process that started the server, if its main thread did
TERMINATED = 128 + signal.SIGTERM  # exit status of a server that SIGTERM has ended
_REMOVE_S = 5.0  # how long ending workers may still write to the folder


def remove(folder: Path) -> None:
    """Remove a folder. If other processes still write to it, try again for up to ``_REMOVE_S`` seconds."""
    until = time.monotonic() + _REMOVE_S
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)


def _end_with_launcher(launcher: int, folder: Path) -> None:
    """Remove ``folder`` and exit on SIGTERM, which Linux sends when the launcher's thread ends."""
    server = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() == server:  # and not a new fork
            remove(folder)
        os._exit(TERMINATED)  # at once, even during a normal exit

    signal.signal(signal.SIGTERM, end)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != launcher:
        sys.exit()  # it has ended already


if FOLDER in os.environ:
    atexit.register(remove, Path(os.environ[FOLDER]))
    if LAUNCHER in os.environ:
        _end_with_launcher(int(os.environ[LAUNCHER]), Path(os.environ[FOLDER]))
