"""The names that a user probably meant, for messages about a name that is not known."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: str, known: Iterable[str], more: str = "") -> str:
    """Return ``did you mean all_reduce/ring? (there are ...)``; without a name that is close, only what there is.

    Of names like ``all_reduce/ring`` the part behind the slash is compared, so ``ring`` is close to every ring.

    >>> suggest("rings", ["ring", "naive"])
    'did you mean ring? (there are ring, naive)'
    """
    names = list(known)
    listed = ", ".join(names) + more
    close = _close(name, names)
    return f"did you mean {' or '.join(close)}? (there are {listed})" if close else f"there are {listed}"


def _close(name: str, known: list[str]) -> list[str]:
    family, _, last = name.rpartition("/")
    found = get_close_matches(last, list(dict.fromkeys(map(_last, known))), n=1)
    fitting = [one for one in known if _last(one) in found]
    return [one for one in fitting if one.rpartition("/")[0] == family] or fitting


def _last(name: str) -> str:
    return name.rpartition("/")[2]
