"""The names of models that are not a user's own, known without importing torch."""

import re
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from collectives.errors import InputError
from collectives.quoting import close_names, quote, suggest
from collectives.records.model_profile import EXAMPLE, TRANSFORMERS, is_transformer

ACCEPTED = f"a model of torchvision like resnet50, one like gpt2, FILE.py:NAME, or {EXAMPLE}"
REGISTERED = re.compile(r"^@register_model\(.*?^def (\w+)", re.MULTILINE | re.DOTALL)  # a model, in torchvision's files


def check_model_name(text: str) -> None:
    """Raise InputError for a name of no model, without importing torch, which takes seconds.

    >>> check_model_name("resnet5")
    Traceback (most recent call last):
    ...
    collectives.errors.InputError: model 'resnet5' is not known; did you mean resnet50 or wide_resnet50_2? ...
    """
    known = [*torchvision_models()]
    if is_transformer(text) or text in known or not known:  # without torchvision its import says so
        return
    names = [*TRANSFORMERS, *known]
    is_name = not (":" in text or "/" in text or text.endswith(".py"))
    near = f"{suggest(text, names)}; or " if is_name and close_names(text, names) else ""
    raise InputError(f"model {quote(text)} is not known; {near}give {ACCEPTED}")


def torchvision_models() -> Iterator[str]:
    """Yield the names of torchvision's models, as its files register them."""
    package = PathFinder.find_spec("torchvision")
    for folder in (package and package.submodule_search_locations) or ():
        for file in sorted(Path(folder, "models").glob("*.py")):
            yield from REGISTERED.findall(file.read_text(encoding="utf-8"))
