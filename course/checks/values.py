"""Values that tell whose they are: sums of them say how often each rank's are in them."""

PLACES, OWN, COUNTS = 5, 100, 4  # what an element tells: its place modulo 5, and how often it holds which rank's


def value_at(rank: int, place: int) -> float:
    """Return a rank's value at a place of its tensor: digit ``rank`` in base 4, above two decimals of the place.

    >>> value_at(1, 7)
    402.0
    """
    return float(place % PLACES + OWN * COUNTS**rank)


def counts_in(value: float) -> dict[int, int]:
    """Return how often each rank's value is in a sum; none of what is no such sum.

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
