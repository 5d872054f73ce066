"""Python's module ``random`` draws the calling rank's own numbers, as it does in a process of its own."""

import functools
import random
from collections.abc import Callable
from typing import Any

from virtual.process.replaced import Replaced
from virtual.ranks.world import VirtualWorld


def install_random(world: VirtualWorld, replaced: Replaced) -> None:
    """Have the functions of ``random`` that share one generator use that of the calling rank."""
    for name, function in list(vars(random).items()):
        if isinstance(getattr(function, "__self__", None), random.Random):
            replaced.put(random, name, _draw_for_rank(world, name, function))


def _draw_for_rank(world: VirtualWorld, name: str, shared: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(shared)
    def draw(*args: Any, **named: Any) -> Any:
        rank = world.me()
        return (shared if rank is None else getattr(rank.own.python_numbers, name))(*args, **named)

    return draw
