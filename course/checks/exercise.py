"""What an exercise of a lesson asks of a learner's function, and the words in which a check says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

LATENCY = 5e-6  # seconds of each link of the lessons' clusters: 10 us from host to host
BANDWIDTH = 1.25e9  # bytes per second: 10 Gbit/s
ALPHA, BETA = 2 * LATENCY, 1 / BANDWIDTH


class WrongAnswerError(Exception):
    """What a learner's function does, and what it should do."""


@dataclass(frozen=True)
class Exercise:
    """One function or class of a lesson: how it is tried, and what it may cost.

    Each rank of each world size calls ``check`` with the learner's module; it raises ``WrongAnswerError``. For a world
    size ``most_bytes`` gives what one rank may send, and ``most_seconds`` the virtual time of the slowest.
    """

    name: str
    check: Callable[[ModuleType], None]
    world_sizes: tuple[int, ...] = (1,)
    racks: int = 0  # behind a thin trunk; 0: all hosts at one switch
    most_bytes: Callable[[int], float] | None = None
    most_seconds: Callable[[int], float] | None = None
    hint: str = ""  # for a function that is right and costs too much


@dataclass(frozen=True)
class Shown:
    """How a lesson's file is run to be shown, and which algorithm of ours is played beside it."""

    ranks: int
    reference: str = ""
    nbytes: int = 0
    racks: int = 0


def expect_equal(got: Tensor, wanted: Tensor, what: str) -> None:
    """Raise WrongAnswerError that names the first element which differs."""
    if got.shape != wanted.shape:
        raise WrongAnswerError(f"{what} has the shape {list(got.shape)} and should have {list(wanted.shape)}")
    differs = ~got.isclose(wanted, rtol=1e-4, atol=1e-5)
    if differs.any():
        place = differs.nonzero()[0].tolist()
        where = "".join(f"[{index}]" for index in place)
        raise WrongAnswerError(
            f"{what} is {got[tuple(place)]:g} at {where} and should be {wanted[tuple(place)]:g} "
            f"({int(differs.sum())} of {differs.numel()} elements differ)"
        )


def expect_close(got: Any, wanted: float, what: str, within: float = 1e-3) -> None:
    """Raise WrongAnswerError unless a number is within a fraction of what it should be."""
    if not isinstance(got, (int, float)):
        raise WrongAnswerError(f"{what} should be a number and is {got!r}")
    if abs(got - wanted) > within * abs(wanted) + 1e-12:
        raise WrongAnswerError(f"{what} should be {wanted:.6g} and is {got:.6g}")
