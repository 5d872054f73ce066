"""Test values whose sum reveals which ranks it contains, and how often."""

PLACES, OWN, COUNTS = 5, 100, 4  # an element encodes its place modulo 5, and up to 3 times each rank


def value_at(rank: int, place: int) -> float:
    """Return a rank's value at a place of its tensor: 100 times 4 to the power of the rank, plus the place modulo 5.

    >>> value_at(1, 7)
    402.0
    """
    return float(place % PLACES + OWN * COUNTS**rank)


def counts_in(value: float) -> dict[int, int]:
    """Return how often each rank's value is in a sum; an empty dict if the number is not such a sum.

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
