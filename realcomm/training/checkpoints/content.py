"""The content of a checkpoint: tensors, numbers and texts as ``torch.save`` writes them, read without executing any."""

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from collectives.errors import InputError, describe_error

_NOT_ALLOWED = re.compile(r"(?:GLOBAL|global|function|class) (\S+\.\w+)")

State = dict[str, Any]


def to_bytes(state: State) -> memoryview:
    """Return a state as the content of a file, which ``torch.load(..., weights_only=True)`` reads too."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getbuffer()


def from_bytes(content: bytes, path: Path) -> State:
    """Return the state in the content of a file, its tensors on the CPU.

    Nothing in it is executed and nothing is unpacked. Raise InputError, which names ``path``, for anything else than
    ``to_bytes`` writes.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise InputError(f"{path} is no checkpoint: what is in it is compressed")
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # torch raises whatever its readers do
        raise InputError(f"{path} is no checkpoint: {_why(error)}") from error
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise InputError(f"{path} is no checkpoint: it holds {type(state).__name__}, not the parts of a training")
    return state


def _why(error: Exception) -> str:
    refused = _NOT_ALLOWED.search(str(error))
    if refused:
        return f"to read it would execute {refused[1]}, which it never needs"
    return describe_error(error, None)
