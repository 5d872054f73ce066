"""A program as a list of its steps, for processes that cannot import its function."""

from collections.abc import Callable, Iterator
from typing import Any

from collectives.catalogue import rebuild_algorithm
from collectives.declaration import Algorithm
from collectives.schedule.build import build_schedule
from collectives.step import Step

Steps = tuple[tuple[tuple[Step, ...], ...], ...]  # [rank][channel][step]


class ListedProgram:
    """The function of an algorithm with known steps, for one number of ranks."""

    def __init__(self, by_root: tuple[Steps, ...]) -> None:
        self.by_root = by_root

    def __call__(self, rank: int, world_size: int, root: int = 0) -> tuple[Iterator[Step], ...]:
        """Return the steps of each channel of a rank."""
        return tuple(map(iter, self.by_root[root][rank]))


def reduce_to_steps(algorithm: Algorithm, world_size: int) -> tuple[Callable[..., Algorithm], tuple[Any, ...]]:
    """Return the pickled form of an algorithm for ``world_size`` ranks, without its function.

    Raise what ``build_schedule`` raises.
    """
    roots = range(world_size if algorithm.spec.rooted else 1)
    listed = ListedProgram(tuple(build_schedule(algorithm, world_size, root).programs for root in roots))
    counts = algorithm.chunks(world_size), algorithm.scratch(world_size)
    kept = algorithm.spec.name, algorithm.name, listed, *counts, dict(algorithm.parameters)
    return rebuild_algorithm, (*kept, None, algorithm.by_model)
