"""The Pareto front: choices that no other beats in both time and money."""

from collections.abc import Sequence


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the positions of the points with nothing at most as large in both and less in one, by the first number.

    Of equal points the first stays.

    >>> pareto_front([(1.0, 9.0), (2.0, 9.0), (3.0, 4.0), (2.5, 5.0), (4.0, 4.0)])
    [0, 3, 2]
    """
    front, least = list[int](), float("inf")
    for place in sorted(range(len(points)), key=lambda place: (*points[place], place)):
        if points[place][1] < least:
            front.append(place)
            least = points[place][1]
    return front
