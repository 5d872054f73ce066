"""What a host and its server say to each other: a line each, and the files of a run in a folder."""

import os
import pickle
from dataclasses import dataclass
from pathlib import Path

from virtual.options import VirtualOptions

REQUEST, REFUSED = "request.pickle", "refused.txt"
STARTED, ENDED = "started", "ended"
CRASHED = 97  # the exit status of a run that has broken for a reason of ours
UNCOMPILED = {"TORCH_COMPILE_DISABLE": "1"}  # torch's compiler would trace into the ranks' process groups


@dataclass(frozen=True)
class RunRequest:
    """A run, and where it is to take place."""

    options: VirtualOptions
    folder: str  # the working directory
    environment: dict[str, str]

    def write(self, folder: Path) -> None:
        """Write it for the server, which is started by this process and reads nothing of others."""
        (folder / REQUEST).write_bytes(pickle.dumps(self))


def read_request(folder: Path) -> RunRequest:
    """Return what ``RunRequest.write`` has written."""
    found = pickle.loads((folder / REQUEST).read_bytes())
    assert isinstance(found, RunRequest)
    return found


def here(options: VirtualOptions) -> RunRequest:
    """Return a request for a run as though it were started here."""
    return RunRequest(options, str(Path.cwd()), dict(os.environ))
