"""The profile of any model; of a user's file it is made in a process of its own, and comes back as plain data.

The process that asks for a file's imports no torch.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from collectives.records.files import parse_record
from collectives.records.model_profile import ModelProfile
from collectives.training.workload import is_file_reference
from realcomm.training.model_files import ask_file


def trace_model(text: str, sample: tuple[int, ...] | None = None) -> ModelProfile:
    """Return the profile of the model that ``text`` names, without running it. Raise InputError.

    >>> trace_model("gpt:layers=1,width=8,heads=2,context=4,vocabulary=10").parameters
    1000
    """
    if is_file_reference(text):
        given = [text, None if sample is None else [*sample]]
        file, found = ask_file(text, f"{__name__}:trace_in_guest", given, ("realcomm.profiling.meta",))
        if not isinstance(found, dict):
            raise file.unreadable(TypeError("it is no object"))
        return parse_record(found, ModelProfile, file.path)
    from realcomm.profiling.meta import profile_on_meta  # imports torch
    from realcomm.profiling.model_sources import find_model

    return profile_on_meta(find_model(text, sample))


def trace_in_guest(path: Path, name: str, text: str, sample: list[int] | None) -> dict[str, Any]:
    """Return the fields of the profile, in the process that is there for the file."""
    from realcomm.profiling.meta import profile_on_meta
    from realcomm.profiling.model_sources import find_model
    from realcomm.training.models import build_from_file

    source = find_model(text, None if sample is None else tuple(sample))
    source = source._replace(build=lambda: build_from_file(f"{path}:{name}"), file=path)
    return asdict(profile_on_meta(source))
