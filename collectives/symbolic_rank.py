"""Run a rank program once for many ranks, with a symbolic object in place of the rank number.

A ``ShiftedRank`` is a formula that holds for all ranks. A ``VectorRank`` is an array with one value per rank. The
result of arithmetic on such an object is correct for each of its ranks.

If ranks would take different branches, the object raises ``Diverges``. It raises TypeError for an operation that it
does not support. In both cases, the caller has to build the schedule in another way.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.int64]
LARGEST = 2**31 - 1  # beyond it, a product could overflow


class Diverges(BaseException):  # not an error of the program, so its `except Exception` must not catch it
    """A program needs a single number, but the number differs between ranks.

    ``values`` has the number of each rank, or is None if the numbers are unknown.
    """

    def __init__(self, values: Values | None = None) -> None:
        super().__init__()
        self.values = values


class VectorRank:
    """An integer that differs between ranks, stored as an array with one value per rank."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def _one(self) -> int:
        if (self.values == self.values[0]).all():
            return int(self.values[0])
        raise Diverges(self.values)

    def __bool__(self) -> bool:
        truth = self.values != 0
        if truth.all() or not truth.any():
            return bool(truth[0])
        raise Diverges(truth.astype(np.int64))

    def __index__(self) -> int:
        return self._one()

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self._one())

    def __str__(self) -> str:
        return str(self._one())

    def __format__(self, how: str) -> str:
        return format(self._one(), how)

    def __neg__(self) -> Any:
        return vectorize(-self.values)

    def __invert__(self) -> Any:
        return vectorize(~self.values)

    def __abs__(self) -> Any:
        return vectorize(np.abs(self.values))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def bit_length(self) -> Any:
        return vectorize(np.frexp(np.abs(self.values).astype(np.float64))[1].astype(np.int64))

    def bit_count(self) -> Any:
        return vectorize(np.bitwise_count(self.values).astype(np.int64))


def vectorize(values: npt.NDArray[Any]) -> "VectorRank | int":
    """Return an array as a VectorRank, or as an int if all values are equal. Raise TypeError for large values."""
    values = values.astype(np.int64, copy=False)
    low, high = int(values.min()), int(values.max())
    if low == high:
        return low
    if max(-low, high) > LARGEST:
        raise TypeError(f"values up to {max(-low, high)} are too large to be handled at once")
    return VectorRank(values)


def _operator(name: str, accepts: Callable[[Any], Any], is_reflected: bool = False) -> Callable[[VectorRank, Any], Any]:
    function = getattr(operator, name)

    def operate(self: VectorRank, other: Any) -> Any:
        operand = _operand(other)
        left, right = (operand, self.values) if is_reflected else (self.values, operand)
        if operand is None or not np.all(accepts(right)):
            return NotImplemented
        return vectorize(function(left, right))

    return operate


def _operand(other: Any) -> Any:
    if isinstance(other, VectorRank):
        return other.values
    if isinstance(other, int | np.integer) and -LARGEST <= other <= LARGEST:
        return int(other)
    return None


OPERATORS: dict[str, Callable[[Any], Any]] = {  # each with a test of its right operand
    **dict.fromkeys(("add", "sub", "mul", "and", "or", "xor"), lambda right: True),
    **dict.fromkeys(("floordiv", "mod"), lambda right: right != 0),
    "lshift": lambda right: (right >= 0) & (right < 31),
    "rshift": lambda right: (right >= 0) & (right < 63),
}
for _name, _accepts in OPERATORS.items():
    setattr(VectorRank, f"__{_name}__", _operator(f"__{_name}__", _accepts))
    setattr(VectorRank, f"__r{_name}__", _operator(f"__{_name}__", _accepts, is_reflected=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(VectorRank, f"__{_name}__", _operator(_name, lambda right: True))


class ShiftedRank:
    """The integer ``base + stride * ((rank + shift) % world_size)``, for every rank at once.

    You can add an integer, multiply by a positive integer, and take the remainder modulo ``stride * world_size``. A
    comparison returns a result if it is the same on all ranks, and raises ``Diverges`` otherwise.

    >>> right = (ShiftedRank(world_size=4) + 1) % 4
    >>> right.shift, right.base, (right * 2 + 1).base
    (1, 0, 1)
    """

    __slots__ = ("base", "shift", "stride", "world_size")

    def __init__(self, world_size: int, base: int = 0, stride: int = 1, shift: int = 0) -> None:
        self.world_size, self.base, self.stride, self.shift = world_size, base, stride, shift

    @property
    def values(self) -> range:
        return range(self.base, self.base + self.stride * self.world_size, self.stride)

    def __add__(self, other: Any) -> Any:
        if type(other) is not int:
            return NotImplemented
        return ShiftedRank(self.world_size, self.base + other, self.stride, self.shift)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other if type(other) is int else NotImplemented

    def __mul__(self, other: Any) -> Any:
        if type(other) is not int or other < 1:
            return NotImplemented
        return ShiftedRank(self.world_size, self.base * other, self.stride * other, self.shift)

    __rmul__ = __mul__

    def __mod__(self, other: Any) -> Any:
        if type(other) is not int or other != self.stride * self.world_size:
            return NotImplemented
        further, base = divmod(self.base, self.stride)
        return ShiftedRank(self.world_size, base, self.stride, (self.shift + further) % self.world_size)

    def __bool__(self) -> bool:
        return self != 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ShiftedRank) and self.values == other.values:
            return (self.shift - other.shift) % self.world_size == 0
        if type(other) is int and other not in self.values:
            return False
        raise Diverges

    def __hash__(self) -> int:
        raise Diverges


def _comparison(name: str) -> Callable[[ShiftedRank, Any], Any]:
    compare = getattr(operator, name)

    def answer(self: ShiftedRank, other: Any) -> Any:
        if type(other) is not int:
            return NotImplemented
        answers = compare(self.values[0], other), compare(self.values[-1], other)
        if answers[0] != answers[1]:
            raise Diverges
        return bool(answers[0])

    return answer


for _name in ("lt", "le", "gt", "ge"):
    setattr(ShiftedRank, f"__{_name}__", _comparison(_name))
