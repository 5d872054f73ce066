"""A value in a message: enough of it to be recognised, on one line."""

from collectives.errors import shorten

MOST_LETTERS = 100


def cut(text: str, most: int = MOST_LETTERS) -> str:
    """Return a text; of a long one, the beginning.

    >>> cut("abcdefgh", most=3)
    'abc…'
    """
    return text if len(text) <= most else f"{text[:most]}…"


def quote(value: object) -> str:
    """Return the repr of a value; of a long one, the beginning.

    >>> quote("all_reduce"), len(quote("a" * 1000)) < 120
    ("'all_reduce'", True)
    """
    return shorten(value, MOST_LETTERS)
