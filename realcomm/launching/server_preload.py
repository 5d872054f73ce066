"""What the server that forks workers executes before it imports anything else: see ``realcomm.launching.server``.

Imported elsewhere it does nothing. It ends the server with the thread that started it, which may be killed without
notice, and then removes multiprocessing's folder, in which the folders of launches are.
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
TERMINATED = 128 + signal.SIGTERM  # the exit status by which the server says that SIGTERM ended it
_REMOVE_S = 5.0  # for so long workers that end may still write to the folder


def remove(folder: Path) -> None:
    """Remove a folder to which others may still write, and which others may be removing."""
    until = time.monotonic() + _REMOVE_S
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)


def _end_with_launcher(launcher: int, folder: Path) -> None:
    """Have SIGTERM sent to this process when the thread that started it ends (Linux); elsewhere a closed pipe tells."""
    server = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() == server:  # not one that was forked just now
            remove(folder)
        os._exit(TERMINATED)  # at once, also while it is ending because the pipe was closed

    signal.signal(signal.SIGTERM, end)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != launcher:
        sys.exit()  # it has ended already


if FOLDER in os.environ:
    atexit.register(remove, Path(os.environ[FOLDER]))
    if LAUNCHER in os.environ:
        _end_with_launcher(int(os.environ[LAUNCHER]), Path(os.environ[FOLDER]))
