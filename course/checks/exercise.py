"""What an exercise of a lesson asks of a learner's function, and the words in which a check says what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

LATENCY = 5e-6  # seconds of each link of the lessons' clusters: 10 us from host to host
BANDWIDTH = 1.25e9  # bytes per second: 10 Gbit/s
ALPHA, BETA = 2 * LATENCY, 1 / BANDWIDTH


class WrongAnswerError(Exception):
    """What a learner's function does, and what it should do; a ``tensor`` that is wrong, and at which ``place``."""

    def __init__(self, text: str, tensor: object = None, place: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.tensor, self.place = tensor, tuple(place)


@dataclass(frozen=True)
class Exercise:
    """One function or class of a lesson: how it is tried, and what it may cost.

    Each rank of each world size calls ``check`` with the learner's module; it raises ``WrongAnswerError``. For a world
    size ``most_bytes`` gives what one rank may send, and ``most_seconds`` the virtual time of the slowest.
    """

    name: str
    check: Callable[[ModuleType], None]
    read: str  # what to read where it is wrong: of torch, of the lesson, a command that shows it; never the way itself
    world_sizes: tuple[int, ...] = (1,)
    racks: int = 0  # behind a thin trunk; 0: all hosts at one switch
    most_bytes: Callable[[int], float] | None = None
    most_seconds: Callable[[int], float] | None = None
    least_bytes: Callable[[int], float] | None = None  # that no right way goes below
    most_all_reduces: int | None = None  # that a rank calls
    hint: str = ""  # for a function that is right and costs too much, or too little


@dataclass(frozen=True)
class Shown:
    """How a lesson's file is run to be shown, and which algorithm of ours is played beside it.

    With ``call`` that calls a learner's function on a tensor of float32, as each rank does, buffers are shown: they end
    with the sum of all ranks' tensors, or with that of ``root``. Else the file is run as a program.
    """

    ranks: int
    reference: str = ""
    nbytes: int = 0
    racks: int = 0
    call: Callable[[ModuleType, Tensor], object] | None = None
    root: int | None = None


def expect_equal(got: Tensor | None, wanted: Tensor, what: str) -> None:
    """Raise WrongAnswerError that names the first element which differs."""
    if not hasattr(got, "isclose") or got is None:
        raise WrongAnswerError(f"{what} should be a tensor and is {got!r}")
    if got.shape != wanted.shape:
        text = f"{what} has the shape {list(got.shape)} and should have {list(wanted.shape)}"
        raise WrongAnswerError(text, got, [0] * got.ndim)
    differs = ~got.isclose(wanted, rtol=1e-4, atol=1e-5)
    if differs.any():
        place = differs.nonzero()[0].tolist()
        where = "".join(f"[{index}]" for index in place)
        ratio = float(got[tuple(place)]) / float(wanted[tuple(place)] or float("inf"))
        every = (
            f", {times(ratio)}"
            if len(wanted.unique()) > 1 and got.isclose(ratio * wanted, rtol=1e-4, atol=1e-5).all()
            else ""
        )
        raise WrongAnswerError(
            f"{what} is {got[tuple(place)]:g} at {where} and should be {wanted[tuple(place)]:g} "
            f"({int(differs.sum())} of {differs.numel()} elements differ{every if times(ratio) else ''})",
            got,
            place,
        )


def expect_close(
    got: Any, wanted: float, what: str, within: float = 1e-3, mistakes: Mapping[str, float] | None = None
) -> None:
    """Raise WrongAnswerError unless a number is within a fraction of what it should be.

    ``mistakes`` gives what numbers come of, said where it is one of them; else a plain ratio is.
    """
    if not isinstance(got, (int, float)):
        hint = ": return it" if got is None else ""
        raise WrongAnswerError(f"{what} should be a number and is {got!r}{hint}")
    if abs(got - wanted) > within * abs(wanted) + 1e-12:
        known = [
            f"that comes of {name}"
            for name, value in (mistakes or {}).items()
            if abs(got - value) <= within * abs(value)
        ]
        why = next(iter(known), "") or times(got / wanted if wanted else 0.0, within)
        raise WrongAnswerError(f"{what} should be {wanted:.6g} and is {got:.6g}{why and ': '}{why}")


def times(ratio: float, within: float = 1e-3) -> str:
    """Return a ratio to what should be in words, where it is a plain one.

    >>> times(2.0), times(0.25), times(-1.0), times(1000.0), times(1.37)
    ('2 times that', 'a 4th of that', 'of the wrong sign', '1000 times that', '')
    """
    if abs(ratio + 1) <= within:
        return "of the wrong sign"
    for factor in (*range(2, 17), 32, 64, 1000, 3600, 1e6, 1e9):
        if abs(ratio / factor - 1) <= within:
            return f"{factor:g} times that"
        if abs(ratio * factor - 1) <= within:
            return "half of that" if factor == 2 else f"a {factor:g}th of that"
    return ""
