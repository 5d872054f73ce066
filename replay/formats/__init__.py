"""Read recordings in other formats: Chakra's execution traces and torch.profiler traces."""

from pathlib import Path

from collectives.checks import check_path
from collectives.records.kineto import is_profile
from replay.formats.chakra import read_chakra
from replay.formats.profiled import read_profiled
from replay.recording import Recording, read_recording


def read_any_recording(path: Path | str) -> Recording:
    """Read a recording. ``path`` is a Ringlab recording, the Chakra trace of any rank, or torch.profiler traces.

    Raise InputError if a file is missing or invalid.
    """
    file = check_path("recording", path)
    if file.suffix == ".et":
        return read_chakra(file)
    return read_profiled(file) if is_profile(file) else read_recording(file)
