"""Symbolic ranks: stand in for the rank number, so that one run of a program says what many ranks say.

A ``DigitRank`` stands for all ranks by the digits of their number, a ``VectorRank`` for some by the value of each. Both
do only what gives each rank its own result. Where ranks would take different branches they raise ``Diverges``, and
where a program does anything else with its rank, Python raises TypeError; the schedule is then built another way.
"""

from collections.abc import Callable, Sequence
from math import gcd, prod
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.int64]
LARGEST = 2**31 - 1  # beyond it a product could overflow


class Diverges(BaseException):  # not an error of the program, so its own `except Exception` must not stop it
    """Ranks have different values where the program needs one; ``values`` has that of each, or is None."""

    def __init__(self, values: Values | None = None) -> None:
        super().__init__()
        self.values = values


class DigitNeeded(Diverges):
    """A program divides its rank by ``width``, which could be the number of columns that ranks are counted in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width


class VectorRank:
    """An integer that has a value on each of many ranks, as arithmetic on the rank gives it."""

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
        return vectorise(-self.values)

    def __invert__(self) -> Any:
        return vectorise(~self.values)

    def __abs__(self) -> Any:
        return vectorise(np.abs(self.values))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def bit_length(self) -> Any:
        """Return the bits that it takes to write the number, as ``int.bit_length``."""
        return vectorise(np.frexp(np.abs(self.values).astype(np.float64))[1].astype(np.int64))

    def bit_count(self) -> Any:
        """Return how many bits are set, as ``int.bit_count``."""
        return vectorise(np.bitwise_count(self.values).astype(np.int64))


def vectorise(values: npt.NDArray[Any]) -> "VectorRank | int":
    """Return the values as one integer, a plain one if they agree. Raises TypeError if one is too large."""
    values = values.astype(np.int64, copy=False)
    low, high = int(values.min()), int(values.max())
    if low == high:
        return low
    if max(-low, high) > LARGEST:
        raise TypeError(f"values up to {max(-low, high)} are too large to be handled at once")
    return VectorRank(values)


def look_up(table: Sequence[int], index: Any) -> Any:
    """Return ``table[index]``, of a symbolic index that of each rank.

    >>> look_up((5, 7, 9), VectorRank(np.array([2, 0]))).values
    array([9, 5])
    """
    if isinstance(table, range):
        return table.start + table.step * index
    return vectorise(np.asarray(table, np.int64)[index.values]) if isinstance(index, VectorRank) else table[index]


def _operator(
    function: Callable[[Any, Any], Any], acceptable: Callable[[Any], Any]
) -> Callable[[VectorRank, Any], Any]:
    def operate(self: VectorRank, other: Any) -> Any:
        right = _right(other)
        if right is None or not np.all(acceptable(right)):
            return NotImplemented
        return vectorise(function(self.values, right))

    return operate


def _reflected(
    function: Callable[[Any, Any], Any], acceptable: Callable[[Any], Any]
) -> Callable[[VectorRank, Any], Any]:
    def operate(self: VectorRank, other: Any) -> Any:
        left = _right(other)
        if left is None or not np.all(acceptable(self.values)):
            return NotImplemented
        return vectorise(function(left, self.values))

    return operate


def _right(other: Any) -> Any:
    """Return the other operand as numpy takes it; None if it is no integer or too large."""
    if isinstance(other, VectorRank):
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
    setattr(VectorRank, f"__{_name}__", _operator(*_both))
    setattr(VectorRank, f"__r{_name}__", _reflected(*_both))
for _name, _compare in _COMPARISONS.items():
    setattr(VectorRank, f"__{_name}__", _operator(_compare, _any))


Digits = tuple[int, ...]  # a number for each digit of a rank, the most significant first


class DigitRank:
    """``base`` and for each digit of the rank's number ``stride * ((digit + shift) % count)``, of any rank.

    The digits are those of a mixed radix, whose counts are ``radix``: of all ranks in one digit, or of rows and
    columns. A stride of 0 says that the number does not depend on the digit. It compares where all ranks agree, and
    raises ``Diverges`` where they do not.

    >>> row, column = divmod(DigitRank.of((3, 4)), 4)
    >>> ((row + 1) % 3 * 4 + column).shifts
    (1, 0)
    """

    __slots__ = ("base", "radix", "shifts", "strides")

    def __init__(self, radix: Digits, base: int, strides: Digits, shifts: Digits) -> None:
        self.radix, self.base, self.strides, self.shifts = radix, base, strides, shifts

    @classmethod
    def of(cls, radix: Digits) -> "DigitRank":
        """Return the rank itself."""
        return cls(radix, 0, place_values(radix), (0,) * len(radix))

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest value that it has on some rank."""
        return self.base, self.base + sum(s * (n - 1) for s, n in zip(self.strides, self.radix, strict=True))

    def __add__(self, other: Any) -> Any:
        if type(other) is int:
            return DigitRank(self.radix, self.base + other, self.strides, self.shifts)
        if not isinstance(other, DigitRank) or any(map(min, self.strides, other.strides)):
            return NotImplemented
        strides = tuple(map(max, self.strides, other.strides))
        shifts = (
            mine if stride else its for stride, mine, its in zip(self.strides, self.shifts, other.shifts, strict=True)
        )
        return DigitRank(self.radix, self.base + other.base, strides, tuple(shifts))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other if type(other) is int else NotImplemented

    def __mul__(self, other: Any) -> Any:
        if type(other) is not int or other < 1:
            return NotImplemented
        return DigitRank(self.radix, self.base * other, tuple(s * other for s in self.strides), self.shifts)

    __rmul__ = __mul__

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __floordiv__(self, other: Any) -> Any:
        if type(other) is not int or other < 1:
            return NotImplemented
        least, most = self._below(other).ends
        if least // other != most // other:
            return self._need(other)
        strides = tuple(s // other if s % other == 0 else 0 for s in self.strides)
        return DigitRank(self.radix, least // other, strides, self.shifts) if any(strides) else least // other

    def __mod__(self, other: Any) -> Any:
        if type(other) is not int or other < 1:
            return NotImplemented
        rest = self._below(other)
        least, most = rest.ends
        if least // other == most // other:
            return rest - least // other * other if any(rest.strides) else least % other
        digits = [k for k, stride in enumerate(rest.strides) if stride]
        if len(digits) > 1 or rest.strides[digits[0]] * self.radix[digits[0]] != other:
            return self._need(other)
        further, base = divmod(rest.base, rest.strides[digits[0]])
        shifts = list(self.shifts)
        shifts[digits[0]] = (shifts[digits[0]] + further) % self.radix[digits[0]]
        return DigitRank(self.radix, base, rest.strides, tuple(shifts))

    def _below(self, number: int) -> "DigitRank":
        """Return it without the digits that count in multiples of ``number``."""
        strides = tuple(stride if stride % number else 0 for stride in self.strides)
        return DigitRank(self.radix, self.base, strides, self.shifts)

    def _need(self, width: int) -> Any:
        """Raise DigitNeeded where ranks that are counted in columns, so many, would know what is asked."""
        if len(self.radix) == 1 and 1 < width < self.radix[0] and self.radix[0] % width == 0:
            raise DigitNeeded(width)
        return NotImplemented

    def __bool__(self) -> bool:
        return self != 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DigitRank) and (self.base, self.strides) == (other.base, other.strides):
            digits = zip(self.radix, self.strides, self.shifts, other.shifts, strict=True)
            apart = [(mine - its) % count for count, stride, mine, its in digits if stride]
            if not any(apart) or len(apart) == 1:
                return not any(apart)
        if type(other) is int:
            least, most = self.ends
            if not least <= other <= most or (other - self.base) % gcd(*self.strides):
                return False
        raise Diverges

    def __hash__(self) -> int:
        raise Diverges

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, int.__lt__)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, int.__le__)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, int.__gt__)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, int.__ge__)

    def _compare(self, other: Any, compare: Callable[[int, int], bool]) -> Any:
        if type(other) is not int:
            return NotImplemented
        least, most = self.ends
        if compare(least, other) != compare(most, other):
            raise Diverges
        return compare(least, other)


def place_values(radix: Digits) -> Digits:
    """Return how much one more of each digit adds to a number.

    >>> place_values((3, 4))
    (4, 1)
    """
    return tuple(prod(radix[k + 1 :]) for k in range(len(radix)))
