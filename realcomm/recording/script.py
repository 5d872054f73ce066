"""A program executed in this process as one rank of a run that is recorded."""

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from realcomm.recording.recorder import CallRecorder


def record_script(script: Path, arguments: Sequence[str], folder: Path, *, as_module: bool = False) -> None:
    """Execute a script, or with ``as_module`` a module, as ``__main__``, and write what this rank called to ``folder``.

    What the program raises is raised, with the log written before.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    title = " ".join([script.name, *arguments])[:200]
    recorder = CallRecorder(title if title.isprintable() else script.name, rank, world_size)
    recorder.install()
    sys.argv = [str(script), *arguments]
    try:
        if as_module:
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(str(script), run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(script.parent.absolute()))
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    finally:
        recorder.finish().write(folder)
