"""Check model names, and try users' model files in a subprocess with limits before any rank runs them.

Importing this module does not import torch.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from collectives.errors import InputError, ProgramEnded
from collectives.input_files import FileBytes, check_input
from collectives.programs.limits import ProgramLimits, read_limits
from collectives.programs.sandbox import ProgramFile
from collectives.quoting import close_names, make_printable, quote, suggest
from collectives.records.model_profile import EXAMPLE, TRANSFORMERS, is_transformer
from collectives.training.workload import Training, is_file_reference
from collectives.variables import is_first_rank
from realcomm.launching.torchrun import is_in_group

ACCEPTED = f"a torchvision model like resnet50, a transformer like gpt2, FILE.py:NAME, or {EXAMPLE}"
REGISTERED = re.compile(r"^@register_model\(.*?^def (\w+)", re.MULTILINE | re.DOTALL)  # a model in torchvision's files
_MODELS = "realcomm.training.models"


def check_model_name(text: str) -> None:
    """Raise InputError for an unknown model name, without importing torch, which takes seconds.

    >>> check_model_name("resnet5")
    Traceback (most recent call last):
    ...
    collectives.errors.InputError: unknown model 'resnet5'; did you mean resnet50 or wide_resnet50_2? ...
    """
    known = [*torchvision_models()]
    if is_transformer(text) or text in known or not known:  # a missing torchvision is reported at its import
        return
    names = [*TRANSFORMERS, *known]
    is_name = not (":" in text or "/" in text or text.endswith(".py"))
    suggestion = f"{suggest(text, names)}; or " if is_name and close_names(text, names) else ""
    raise InputError(f"unknown model {quote(text)}; {suggestion}use {ACCEPTED}")


def torchvision_models() -> Iterator[str]:
    """Yield the names of torchvision's models, which are read from its source files."""
    package = PathFinder.find_spec("torchvision")
    for folder in (package and package.submodule_search_locations) or ():
        for file in sorted(Path(folder, "models").glob("*.py")):
            yield from REGISTERED.findall(file.read_text(encoding="utf-8"))


def check_model(training: Training) -> None:
    """Check the model file of a training run. Raise InputError if it is missing or exceeds its limits.

    The file is executed in a subprocess with limited time and memory. Under torchrun, only rank 0 does this, before it
    joins the group. Ranks that are already in a group skip it. Other errors are raised when a rank builds the model.
    """
    if is_file_reference(training.model):
        path = check_model_file(training.model)
        if is_first_rank() and not is_in_group():
            _try(training.model, path)


def count_parameters(training: Training) -> Training:
    """Return ``training`` with the number of parameters of a user's model, which predictions and calibrations need.

    If the model is not a user's or the number is set, return ``training`` unchanged. Otherwise execute the user's file
    in a subprocess. Raise InputError if the model cannot be built.
    """
    if not is_file_reference(training.model) or training.parameters is not None:
        return training
    count = _try(training.model, check_model_file(training.model))
    if isinstance(count, int) and count > 0:
        return replace(training, parameters=count)
    raise InputError(
        f"{make_printable(str(count))}; if the model cannot be built without data, set training.parameters to its "
        "number of parameters"
    )


def _try(model: str, path: Path) -> Any:
    status = path.stat()
    return _try_file(model, path.resolve(), status.st_mtime_ns, status.st_size, read_limits())


def check_model_file(text: str) -> Path:
    """Return the path in ``FILE.py:NAME``. Raise InputError if the file cannot be read."""
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not path.exists():
        raise InputError(f"model {quote(text)}: {file}: no such file; use FILE.py:{name}")
    try:
        check_input(path, FileBytes.PROGRAM)
    except InputError as error:
        raise InputError(f"model {quote(text)}: {error}") from error
    return path


@lru_cache(maxsize=64)
def _try_file(text: str, path: Path, changed_ns: int, nbytes: int, limits: ProgramLimits) -> Any:
    return ask_file(text, f"{_MODELS}:try_model", [], (_MODELS,))[1]


def ask_file(text: str, function: str, arguments: list[Any], modules: tuple[str, ...]) -> tuple[ProgramFile, Any]:
    """Call ``function`` of Ringlab on ``FILE.py:NAME`` in a subprocess; return the file and the function's result.

    The function's arguments are the file's path, NAME and ``arguments``. Its result is plain data that must be checked,
    because the user's code could change it. Ringlab's ``modules`` are imported before the file, so that importing torch
    does not count toward the file's limits. Raise InputError if the file fails or exceeds its limits.
    """
    path = check_model_file(text).absolute().resolve()
    file = ProgramFile(path, modules)
    try:
        header, _ = file.ask({"do": "call", "function": function, "given": [text.rpartition(":")[2], *arguments]})
    except ProgramEnded as error:
        raise InputError(f"model {quote(text)}: {error}") from error
    if "refused" in header:
        reason = make_printable(str(header["refused"]))
        raise InputError(reason if reason.startswith("model ") else f"model {quote(text)}: {reason}")
    return file, header.get("found")
