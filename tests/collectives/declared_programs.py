"""Declare the rank programs of tests as algorithms."""

from collections.abc import Callable
from typing import Any

from collectives import algorithm
from collectives.declaration import Algorithm


def declared(collective: str, function: Callable[..., Any], **options: Any) -> Algorithm:
    return algorithm(collective, **options)(function)
