"""JSON in which no key stands twice in an object: of two, nobody could say which one is meant."""

import json
from collections.abc import Callable
from typing import Any

from collectives.quoting import quote


def parse_json(text: str, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Return what a text of JSON holds. Raise ValueError for what is none, RecursionError for one too deep.

    ``parse_constant`` is as in ``json.loads``.

    >>> parse_json('{"ranks": 2, "ranks": 4}')
    Traceback (most recent call last):
    ...
    ValueError: key 'ranks' is there twice in one object
    """
    return json.loads(text, object_pairs_hook=_without_doubles, parse_constant=parse_constant)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raise ValueError for a key that is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise ValueError(f"key {quote(twice)} is there twice in one object")
    return found
