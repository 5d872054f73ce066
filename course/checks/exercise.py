"""Exercises of a lesson, and the errors that their checks raise."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

LATENCY = 5e-6  # seconds of each link of the lessons' clusters: 10 us from host to host
BANDWIDTH = 1.25e9  # bytes per second: 10 Gbit/s
ALPHA, BETA = 2 * LATENCY, 1 / BANDWIDTH

BLOCKING = frozenset({"send", "recv"})
POINT_TO_POINT = BLOCKING | {"isend", "irecv", "batch_isend_irecv"}
SHARDING = frozenset({"reduce_scatter_tensor", "reduce_scatter", "all_gather_into_tensor", "all_gather"})
StageSpan = tuple[str, int, float, float]  # "forward" or "backward", micro-batch, begin and end in virtual seconds


class WrongAnswerError(Exception):
    """Raised if a learner's function gives a wrong result. ``place`` is the index of a wrong element of ``tensor``."""

    def __init__(self, text: str, tensor: object = None, place: Sequence[int] = ()) -> None:
        super().__init__(text)
        self.tensor, self.place = tensor, tuple(place)


@dataclass(frozen=True)
class Exercise:
    """A function or class that learners write. Use the Exercise as a decorator of the function that checks it.

    Every rank of every world size calls the check with the learner's module; the check raises ``WrongAnswerError``. The
    limits on bytes and time apply to the ``measuring`` blocks of the check. They are functions of the world size.

    >>> @Exercise("the lesson's first paragraph", (1, 2))
    ... def bubble(lesson):
    ...     pass
    >>> bubble.name, bubble.world_sizes
    ('bubble', (1, 2))
    """

    read: str  # what to read after a wrong answer; never the solution itself
    world_sizes: tuple[int, ...] = (1,)
    name: str = ""  # of the learner's function or class; default: the name of the check
    check: Callable[[ModuleType], None] = print  # replaced by the function that the exercise decorates
    racks: int = 0  # joined by a thin trunk; 0: all hosts at one switch
    calls: Collection[str] | None = None  # allowed functions of torch.distributed; None: all
    receivers: Callable[[int, int], Collection[int]] | None = None  # allowed receivers, by rank and world size
    most_bytes: Callable[[int], float] | None = None  # maximum bytes that one rank may send
    least_bytes: Callable[[int], float] | None = None  # minimum bytes that a correct function sends
    most_seconds: Callable[[int], float] | None = None  # maximum virtual time until the slowest rank is done
    all_reduced: Callable[[int], list[int]] | None = None  # bytes of each all_reduce of a rank
    hint: str = ""  # for a correct result that costs too much or too little

    def __call__(self, check: Callable[[ModuleType], None]) -> Exercise:
        return replace(self, name=self.name or check.__name__, check=check)


@dataclass(frozen=True)
class Shown:
    """How ``learn --show`` runs a lesson's file, and the library algorithm that the player shows next to it.

    If ``call`` is set, each rank passes a float32 tensor to it, and the player shows these tensors. At the end, each
    must contain the sum of all ranks' tensors or, if ``root`` is set, that rank's tensor. If ``record`` is set, the
    file's ``main`` runs, and each forward and backward adds a ``StageSpan`` to the list that ``record`` received.
    Otherwise, the file runs as a program.
    """

    ranks: int
    reference: str = ""
    nbytes: int = 0
    racks: int = 0
    call: Callable[[ModuleType, Tensor], object] | None = None
    root: int | None = None
    record: Callable[[ModuleType, list[StageSpan]], None] | None = None


class LearnerCall(NamedTuple):
    """A communication call from the learner's file on one rank."""

    name: str  # the function of torch.distributed, such as "isend"
    line: int
    receiver: int  # the rank that a message goes to; -1 for every other call
    nbytes: int


@dataclass(frozen=True)
class Predicted:
    """A number for learners to predict: its correct value, a one-sentence explanation, and the learner's answer."""

    right: float
    why: str = ""
    name: str = ""
    answer: float | None = None


@contextmanager
def measuring(lesson: ModuleType, is_measured: bool = True) -> Iterator[None]:
    """Measure this rank's virtual time and bytes inside the block. If there are several blocks, the maximum counts."""
    import torch.distributed as dist

    group: Any = dist.group.WORLD
    rank = group.group.world.me()
    begin = float(rank.clock)
    yield
    if is_measured:
        lesson.__dict__.setdefault(MEASURED, []).append((begin, float(rank.clock)))


MEASURED = "__measured__"  # in a learner's module: begin and end of each measured block, seconds


def expect_equal(got: Tensor | None, wanted: Tensor, name: str) -> None:
    """Raise WrongAnswerError unless ``got`` is a tensor with the shape, dtype and elements of ``wanted``.

    Elements may differ by a relative error of 1e-4 plus an absolute error of 1e-5. The error names the first element
    outside this tolerance.
    """
    if not hasattr(got, "isclose") or got is None:
        raise WrongAnswerError(f"{name} must be a tensor, not {got!r}")
    if got.shape != wanted.shape:
        text = f"{name} must have the shape {list(wanted.shape)}, not {list(got.shape)}"
        raise WrongAnswerError(text, got, [0] * got.ndim)
    if got.dtype != wanted.dtype:
        raise WrongAnswerError(f"{name} must be {wanted.dtype}, not {got.dtype}", got, [0] * got.ndim)
    differs = ~got.isclose(wanted, rtol=1e-4, atol=1e-5)
    if differs.any():
        place = differs.nonzero()[0].tolist()
        where = "".join(f"[{index}]" for index in place)
        ratio = float(got[tuple(place)]) / float(wanted[tuple(place)] or float("inf"))
        is_multiple = len(wanted.unique()) > 1 and bool(got.isclose(ratio * wanted, rtol=1e-4, atol=1e-5).all())
        multiple = times(ratio) if is_multiple else ""
        raise WrongAnswerError(
            f"{name} must be {wanted[tuple(place)]:g} at {where}, not {got[tuple(place)]:g} "
            f"({int(differs.sum())} of {differs.numel()} elements differ{multiple and ', '}{multiple})",
            got,
            place,
        )


def expect_close(
    got: Any, wanted: float, name: str, within: float = 1e-3, mistakes: Mapping[str, float] | None = None
) -> None:
    """Raise WrongAnswerError unless ``got`` is a number within the relative error ``within`` of ``wanted``.

    ``mistakes`` maps each common mistake to the number that it produces. If no mistake matches, the error gives the
    ratio to the correct number.
    """
    number = read_number(got)
    if number is None:
        hint = "; return it" if got is None else ""
        raise WrongAnswerError(f"{name} must be a number, not {got!r}{hint}")
    if not abs(number - wanted) <= within * abs(wanted) + 1e-12:  # also true for nan
        known = [name for name, value in (mistakes or {}).items() if abs(number - value) <= within * abs(value)]
        why = f"probably {known[0]}" if known else times(number / wanted if wanted else 0.0, within)
        raise WrongAnswerError(f"{name} must be {wanted:.6g}, not {number:.6g}{why and ': '}{why}")


def read_number(got: Any) -> float | None:
    """Return a number, NumPy scalar or one-element tensor as a float. Return None for any other value.

    >>> read_number(3), read_number("3"), read_number(None), read_number(True)
    (3.0, None, None, None)
    """
    if isinstance(got, (str, bytes, bool)) or not hasattr(got, "__float__"):
        return None
    try:
        return float(got)
    except (TypeError, ValueError, RuntimeError):
        return None


def times(ratio: float, within: float = 1e-3) -> str:
    """Describe a simple ratio to the correct number, such as "half of that". Return "" for any other ratio.

    >>> times(2.0), times(0.25), times(-1.0), times(1000.0), times(1.37)
    ('2 times that', '1/4 of that', 'the wrong sign', '1000 times that', '')
    """
    if math.isnan(ratio):
        return ""
    if abs(ratio + 1) <= within:
        return "the wrong sign"
    for factor in (*range(2, 17), 32, 64, 1000, 3600, 1e6, 1e9):
        if abs(ratio / factor - 1) <= within:
            return f"{factor:g} times that"
        if abs(ratio * factor - 1) <= within:
            return "half of that" if factor == 2 else f"1/{factor:g} of that"
    return ""


PLACES, OWN, COUNTS = 5, 100, 4  # in test values, an element encodes its place modulo 5, and up to 3 times each rank


def value_at(rank: int, place: int) -> float:
    """Return the test value at the index ``place`` of a rank's tensor: 100 * 4 ** rank + place % 5.

    >>> value_at(1, 7)
    402.0
    """
    return float(place % PLACES + OWN * COUNTS**rank)


def counts_in(value: float) -> dict[int, int]:
    """Return how many times a sum contains each rank's test value. Return {} if it contains none.

    >>> counts_in(value_at(0, 3) + 2 * value_at(2, 3)), counts_in(7.5)
    ({0: 1, 2: 2}, {})
    """
    counts, rank = dict[int, int](), 0
    digits = value // OWN if 0 <= value < float("inf") else 0.0
    while digits >= 1:
        digits, count = divmod(digits, COUNTS)
        if count:
            counts[rank] = int(count)
        rank += 1
    return counts
