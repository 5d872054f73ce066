"""Commands whose options come in groups: a dataclass, each field of which is an option."""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_origin, get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has, in place of each parameter that is a dataclass, the options that its fields say.

    A field is an option where its type says how it is called; the others keep their defaults.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     width: Annotated[int, "--width"] = 2
    >>> @with_groups
    ... def draw(file: str, size: Size) -> None:
    ...     print(file, size)
    >>> [*signature(draw).parameters]
    ['file', 'width']
    >>> draw(file="a", width=3)
    a Size(width=3)
    """
    asked = signature(command, eval_str=True)
    annotations = {name: one.annotation for name, one in asked.parameters.items()}
    groups: dict[str, Any] = {name: group for name, group in annotations.items() if is_dataclass(group)}
    options = {name: _options(group) for name, group in groups.items()}

    @wraps(command)
    def call(**given: Any) -> None:
        made = {
            name: group(**{one.name: given.pop(one.name) for one in options[name]}) for name, group in groups.items()
        }
        command(**given, **made)

    parameters = [parameter for name, one in asked.parameters.items() for parameter in options.get(name, [one])]
    call.__signature__ = asked.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _options(group: Any) -> list[Parameter]:
    """Return the fields of a dataclass that are options, as parameters of a command, which are given by name."""
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=_default(one), annotation=hints[one.name])
        for one in fields(group)
        if get_origin(hints[one.name]) is Annotated
    ]


def _default(one: "Field[Any]") -> Any:
    if one.default_factory is not MISSING:
        return one.default_factory()
    return Parameter.empty if one.default is MISSING else one.default
