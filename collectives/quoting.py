"""A value in a message: enough of it to be recognised, on one line."""

from collectives.errors import shorten

MOST_LETTERS = 100


def quote(value: object) -> str:
    """Return the repr of a value; of a long one, the beginning.

    >>> quote("all_reduce"), len(quote("a" * 1000)) < 120
    ("'all_reduce'", True)
    """
    return shorten(value, MOST_LETTERS)
