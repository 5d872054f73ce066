"""A symbolic rank of a grid: stands in for the rank number where a program counts in rows and columns.

Rank r is in row ``r // width`` and column ``r % width``. All ranks say the same relative to both, as those of
hierarchical algorithms and tori do, if a program only ever adds to its row or its column, modulo their numbers.
"""

from typing import Any, NamedTuple

from collectives.symbolic_rank import ComparedRank, Diverges


class WidthNeeded(BaseException):  # not an error of the program, so its own `except Exception` must not stop it
    """A program divides its rank by ``width``, which may be the width of the grid."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width


class Shape(NamedTuple):
    """Rows and columns of a grid; a width of 0 is not known yet."""

    world_size: int
    width: int

    @property
    def counts(self) -> tuple[int, int]:
        """How many rows and columns there are."""
        return self.world_size // self.width, self.width


class GridRank(ComparedRank):
    """``base`` and, for the row and the column, ``stride * ((row or column + shift) % their number)``, of any rank.

    ``strides`` are of the row and the column, 0 where the number does not depend on it; ``shifts`` go with them.

    >>> rank = GridRank(Shape(12, 4), 0, (4, 1), (0, 0))
    >>> row, column = divmod(rank, 4)
    >>> ((row + 1) % 3 * 4 + column).shifts
    (1, 0)
    """

    __slots__ = ("base", "shape", "shifts", "strides")

    def __init__(self, shape: Shape, base: int, strides: tuple[int, int], shifts: tuple[int, int]) -> None:
        self.shape, self.base, self.strides, self.shifts = shape, base, strides, shifts

    @property
    def least(self) -> int:
        """The least value that it has on some rank."""
        return self.base

    @property
    def most(self) -> int:
        """The greatest value that it has on some rank."""
        return self.base + sum(s * (n - 1) for s, n in zip(self.strides, self.shape.counts, strict=True))

    @property
    def ends(self) -> tuple[int, int]:
        if self.shape.width == 0:
            raise Diverges
        return self.least, self.most

    def _plus(self, number: int) -> "GridRank":
        return GridRank(self.shape, self.base + number, self.strides, self.shifts)

    def __add__(self, other: Any) -> Any:
        if type(other) is int:
            return self._plus(other)
        if not isinstance(other, GridRank) or any(map(min, self.strides, other.strides)):
            return NotImplemented
        strides = (self.strides[0] + other.strides[0], self.strides[1] + other.strides[1])
        shifts = [(self if self.strides[k] else other).shifts[k] for k in range(2)]
        return GridRank(self.shape, self.base + other.base, strides, (shifts[0], shifts[1]))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._plus(-other) if type(other) is int else NotImplemented

    def __mul__(self, other: Any) -> Any:
        if type(other) is not int or other < 1:
            return NotImplemented
        strides = self.strides[0] * other, self.strides[1] * other
        return GridRank(self.shape, self.base * other, strides, self.shifts)

    __rmul__ = __mul__

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __floordiv__(self, other: Any) -> Any:
        if type(other) is not int or other < 1:
            return NotImplemented
        self._need_width(other)
        if self.least >= 0 and self.most < other:
            return 0
        stride, rest = self.strides[0], self.strides[1]
        if stride == other and self.base == 0 and rest * (self.shape.width - 1) < other:
            return GridRank(self.shape, 0, (1, 0), self.shifts)
        return NotImplemented

    def __mod__(self, other: Any) -> Any:
        if type(other) is not int or other < 1:
            return NotImplemented
        self._need_width(other)
        if self.least >= 0 and self.most < other:
            return self
        rows, columns = self.shape.counts
        if self.strides == (other, 1) and other == columns:
            return GridRank(self.shape, 0, (0, 1), (0, (self.shifts[1] + self.base) % columns))
        if self.strides == (0, 1) and other == columns:
            return GridRank(self.shape, 0, (0, 1), (0, (self.shifts[1] + self.base) % columns))
        if self.strides == (1, 0) and other == rows:
            return GridRank(self.shape, 0, (1, 0), ((self.shifts[0] + self.base) % rows, 0))
        return NotImplemented

    def _need_width(self, number: int) -> None:
        """Raise WidthNeeded where a width is not known that a division by ``number`` would tell."""
        if self.shape.width == 0:
            raise WidthNeeded(number)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, GridRank) and (self.base, self.strides) == (other.base, other.strides):
            used = [k for k in range(2) if self.strides[k]]
            apart = [(self.shifts[k] - other.shifts[k]) % self.shape.counts[k] for k in used]
            if not any(apart) or len(used) == 1:
                return not any(apart)
        if type(other) is int and self.shape.width and not self.least <= other <= self.most:
            return False
        raise Diverges

    __hash__ = ComparedRank.__hash__
