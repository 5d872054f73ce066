"""A value or a text in a message: enough of it to be recognised, and nothing that a terminal would obey."""

import os
from shlex import quote as shell_quote

from collectives.errors import shorten

MOST_LETTERS = 100
MOST_PRINTED = 1000  # letters of a text


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


def quote_for_bash(text: str) -> str:
    r"""Return a word that bash reads as ``text``; what would do something to a terminal is written as its bytes.

    >>> quote_for_bash("a b"), quote_for_bash("a\u202eb")
    ("'a b'", "$'a\\xe2\\x80\\xaeb'")
    """
    if text.isprintable():
        return shell_quote(text)
    escaped = ("\\" + one if one in "\\'" else one if one.isprintable() else _bytes_of(one) for one in text)
    return f"$'{''.join(escaped)}'"


def _bytes_of(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(text))


def make_printable(text: str, keep: str = "", most: int = MOST_PRINTED) -> str:
    r"""Return text as one line that shows what would do something to a terminal, as Python would write it.

    That is control characters and escape sequences, line ends, what turns the direction of writing, and halves of
    characters; those in ``keep`` stay. Of a text longer than ``most`` letters the middle is left out.

    >>> make_printable("a\x1b[31mred")
    'a\\x1b[31mred'
    """
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]} ... {len(text) - 2 * half:,} letters ... {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else repr(one)[1:-1] for one in text)
