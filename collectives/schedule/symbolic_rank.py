"""Stand-ins for a rank number, so that one run of a program says what many ranks say.

Both do only what gives each rank its own result. Where ranks would part company they raise ``Diverges``, and where a
program does anything else with its rank, Python raises TypeError; whoever traces then does it another way.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.int64]
LARGEST = 2**31 - 1  # beyond it a product could overflow


class Diverges(BaseException):  # no error: the program asked what differs; no `except Exception` stops it
    """Ranks do not all have the same value where the program needs one; ``values`` has one for each, or is None."""

    def __init__(self, values: Values | None = None) -> None:
        super().__init__()
        self.values = values


class Lanes:
    """The values of an integer on many ranks at once, the same arithmetic on each. Values that agree become an int."""

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

    def __neg__(self) -> Any:
        return lanes(-self.values)

    def __invert__(self) -> Any:
        return lanes(~self.values)

    def __abs__(self) -> Any:
        return lanes(np.abs(self.values))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def bit_length(self) -> Any:
        """As of an int."""
        return lanes(np.frexp(np.abs(self.values).astype(np.float64))[1].astype(np.int64))

    def bit_count(self) -> Any:
        """As of an int."""
        return lanes(np.bitwise_count(self.values).astype(np.int64))


def lanes(values: npt.NDArray[Any]) -> "Lanes | int":
    """Values as a stand-in, or as an int where they agree. Raises TypeError where they are too large."""
    values = values.astype(np.int64, copy=False)
    low, high = int(values.min()), int(values.max())
    if low == high:
        return low
    if max(-low, high) > LARGEST:
        raise TypeError(f"values up to {max(-low, high)} are too large to be handled at once")
    return Lanes(values)


def _operator(function: Callable[[Any, Any], Any], acceptable: Callable[[Any], Any]) -> Callable[[Lanes, Any], Any]:
    def operate(self: Lanes, other: Any) -> Any:
        right = _right(other)
        if right is None or not np.all(acceptable(right)):
            return NotImplemented
        return lanes(function(self.values, right))

    return operate


def _reflected(function: Callable[[Any, Any], Any], acceptable: Callable[[Any], Any]) -> Callable[[Lanes, Any], Any]:
    def operate(self: Lanes, other: Any) -> Any:
        left = _right(other)
        if left is None or not np.all(acceptable(self.values)):
            return NotImplemented
        return lanes(function(left, self.values))

    return operate


def _right(other: Any) -> Any:
    """The other operand as numpy takes it; None where it is no integer or too large a one."""
    if isinstance(other, Lanes):
        return other.values
    if isinstance(other, int | np.integer) and -LARGEST <= other <= LARGEST:
        return int(other)
    return None


def _any(right: Any) -> bool:
    return True


_ARITHMETIC: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "add": (np.add, _any),
    "sub": (np.subtract, _any),
    "mul": (np.multiply, _any),
    "floordiv": (np.floor_divide, lambda right: right != 0),
    "mod": (np.remainder, lambda right: right != 0),
    "and": (np.bitwise_and, _any),
    "or": (np.bitwise_or, _any),
    "xor": (np.bitwise_xor, _any),
    "lshift": (np.left_shift, lambda right: (right >= 0) & (right < 31)),
    "rshift": (np.right_shift, lambda right: (right >= 0) & (right < 63)),
}
_COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
for _name, _both in _ARITHMETIC.items():
    setattr(Lanes, f"__{_name}__", _operator(*_both))
    setattr(Lanes, f"__r{_name}__", _reflected(*_both))
for _name, _compare in _COMPARISONS.items():
    setattr(Lanes, f"__{_name}__", _operator(_compare, _any))


class Shift:
    """``(rank + turn) % world_size + plus`` for a rank that is not said. It can add, and do modulo world_size."""

    __slots__ = ("plus", "turn", "world_size")

    def __init__(self, turn: int, plus: int, world_size: int) -> None:
        self.turn, self.plus, self.world_size = turn, plus, world_size

    def __add__(self, other: Any) -> "Shift":
        return Shift(self.turn, self.plus + other, self.world_size) if type(other) is int else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Shift":
        return Shift(self.turn, self.plus - other, self.world_size) if type(other) is int else NotImplemented

    def __mod__(self, other: Any) -> "Shift":
        if type(other) is int and other == self.world_size:
            return Shift((self.turn + self.plus) % other, 0, other)
        return NotImplemented

    def __bool__(self) -> bool:
        raise Diverges

    def __eq__(self, other: object) -> bool:
        raise Diverges

    def __hash__(self) -> int:
        raise Diverges
