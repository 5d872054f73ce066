"""Text of others on its way to the terminal, which would obey the control characters in it."""

MOST_LETTERS = 1000


def make_printable(text: str, keep: str = "", most: int = MOST_LETTERS) -> str:
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
