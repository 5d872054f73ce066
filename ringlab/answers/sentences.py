"""How many sentences stand under a table; the rest is said with ``--explain``."""

from collections.abc import Sequence

MOST_SENTENCES = 5  # under the tables of an answer; a line that says that there are more is one of them


def keep_few(
    sentences: Sequence[str], more: Sequence[str] = (), most: int = MOST_SENTENCES
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the sentences that are shown and those that ``--explain`` adds, ``more`` among them.

    Where there are too many, the first ones are left to the latter.

    >>> keep_few(["a", "b", "c"], most=2)
    (('c',), ('a', 'b'))
    """
    most -= bool(more) or len(sentences) > most
    hidden = max(0, len(sentences) - most)
    return tuple(sentences[hidden:]), (*sentences[:hidden], *more)
