"""Profile any model without computing values. A user's file is traced in a subprocess.

The subprocess returns plain data. So the calling process need not import torch to profile a user's model.
"""

from collectives.records.files import parse_record
from collectives.records.model_profile import ModelProfile
from collectives.training.workload import is_file_reference
from realcomm.training.model_files import ask_file, check_model_name


def trace_model(text: str, sample: tuple[int, ...] | None = None) -> ModelProfile:
    """Return the profile of the model called ``text``, without computing values.

    Raise InputError if the model is unknown or cannot be traced.

    >>> trace_model("gpt:layers=1,width=8,heads=2,context=4,vocabulary=10").parameters
    1000
    """
    if is_file_reference(text):
        arguments = [text, None if sample is None else [*sample]]
        file, fields = ask_file(
            text, "realcomm.profiling.meta:trace_in_worker", arguments, ("realcomm.profiling.meta",)
        )
        if not isinstance(fields, dict):
            raise file.unreadable(TypeError("not an object"))
        return parse_record(fields, ModelProfile, file.path)
    check_model_name(text)
    from realcomm.profiling.meta import profile_on_meta  # imports torch
    from realcomm.profiling.model_sources import find_model

    return profile_on_meta(find_model(text, sample))
