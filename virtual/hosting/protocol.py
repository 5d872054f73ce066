"""The messages between host and server, one per line, and the files in the folder of a run."""

import os
import pickle
import signal
from dataclasses import dataclass
from pathlib import Path

from virtual.hosting.confinement import Confinement
from virtual.options import VirtualOptions

REQUEST = "request.pickle"
STARTED, ENDED = "started", "ended"
REFUSED, CRASHED = 2, 97  # exit statuses of a rejected run, and of an internal error
TELL = signal.SIGUSR1  # asks a run for its current line
PIPES = ("stdout", "stderr", "why")  # run to host; the last carries the reason for these statuses
UNCOMPILED = {"TORCH_COMPILE_DISABLE": "1"}  # torch's compiler would trace into the ranks' process groups


@dataclass(frozen=True)
class RunRequest:
    """Options of a run, its working directory and environment, and the files that it may use."""

    options: VirtualOptions
    folder: str  # the working directory
    environment: dict[str, str]
    confinement: Confinement | None = None  # None: all files of the user

    def write(self, folder: Path) -> None:
        """Pickle the request into ``folder`` for the server."""
        (folder / REQUEST).write_bytes(pickle.dumps(self))


def read_request(folder: Path) -> RunRequest:
    """Return a request written by ``RunRequest.write``."""
    request = pickle.loads((folder / REQUEST).read_bytes())
    assert isinstance(request, RunRequest)
    return request


def here(options: VirtualOptions, confinement: Confinement | None = None) -> RunRequest:
    """Return a request with the working directory and environment of this process.

    A confinement replaces the working directory and the variables that point to the scratch folder.
    """
    if confinement is None:
        return RunRequest(options, str(Path.cwd()), dict(os.environ))
    return RunRequest(options, confinement.folder, {**os.environ, **confinement.environment}, confinement)
