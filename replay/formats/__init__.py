"""Recordings in the formats of others: Chakra's execution traces in and out, profiles of torch in."""

from pathlib import Path

from collectives.checks import check_path
from collectives.records.kineto import is_profile
from replay.formats.chakra import read_chakra
from replay.formats.profiled import read_profiled
from replay.recording import Recording, read_recording


def read_any_recording(path: Path | str) -> Recording:
    """Return the recording in a file of Ringlab's, one rank's file of Chakra's traces, or profiles of torch.

    Raises InputError that names the file and what is wrong with it.
    """
    given = check_path("recording", path)
    if given.suffix == ".et":
        return read_chakra(given)
    return read_profiled(given) if is_profile(given) else read_recording(given)
