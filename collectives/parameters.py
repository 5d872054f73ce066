"""The parameters of an algorithm: whole numbers and texts, checked against the program that takes them."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from collectives.errors import InputError
from collectives.quoting import quote

Parameter = int | str | None
KINDS: dict[type, str] = {int: "a whole number", str: "a text"}
BRACKETED = re.compile(r"(?P<name>[^\[\]]+)\[(?P<given>.*)\]")
OUTSIDE_BRACKETS = re.compile(r",\s*(?![^\[]*\])")  # a comma that no further bracket closes over


@lru_cache(maxsize=1024)
def function_parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Return all parameters of a function, in order."""
    return tuple(inspect.signature(function).parameters.values())


def positional_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function that can be given by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in function_parameters(function) if p.kind in kinds]


def check_parameters(what: str, known: Sequence[inspect.Parameter], given: Mapping[str, Parameter]) -> None:
    """Raise InputError for a parameter that ``what`` does not have, or a value of another type than it takes."""
    by_name = {parameter.name: parameter for parameter in known}
    for key, value in given.items():
        if key not in by_name:
            raise InputError(f"{what} has no parameter {quote(key)}; it has: {', '.join(by_name) or 'none'}")
        kinds = _kinds(by_name[key])
        if value is not None and type(value) not in kinds:
            wanted = " or ".join(KINDS[kind] for kind in kinds)
            raise InputError(f"{what}: parameter {key} = {quote(value)} is not {wanted}")


def _kinds(parameter: inspect.Parameter) -> list[type]:
    """Return the types a parameter takes: of its annotation, else of its default, else all."""
    said = inspect.formatannotation(parameter.annotation)
    annotated = [kind for kind in KINDS if re.search(rf"\b{kind.__name__}\b", said)]
    alike = [kind for kind in KINDS if type(parameter.default) is kind]
    return annotated or alike or [*KINDS]


def split_parameters(reference: str) -> tuple[str, dict[str, Parameter]]:
    """Return the name and the parameters of a reference; what looks like a whole number is one. Raises InputError.

    >>> split_parameters("chain[slices=4]")
    ('chain', {'slices': 4})
    """
    found = BRACKETED.fullmatch(reference)
    if found is None:
        return reference, {}
    given: dict[str, Parameter] = {}
    for part in OUTSIDE_BRACKETS.split(found["given"]):
        key, _, value = (side.strip() for side in part.partition("="))
        if not key or not value:
            raise InputError(
                f"{reference}: parameters are written like chain[slices=4] or hierarchical[gpus=4, rail=ring]"
            )
        given[key] = int(value) if re.fullmatch(r"-?\d+", value) else value
    return found["name"], given
