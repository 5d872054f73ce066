"""The names that a user probably meant, for messages about a name that is not known."""

from collections.abc import Iterable
from difflib import SequenceMatcher

MOST = 5  # names
ALIKE = 0.6  # share of the letters that two names must have in common
PART = 3  # letters that are enough to be part of a name


def suggest(name: str, known: Iterable[str], more: str = "") -> str:
    """Return ``did you mean all_reduce/ring? (there are ...)``; without a name that is close, only what there is.

    Beside close names others are listed only where there are five at most.
    Of names like ``all_reduce/ring`` the part behind the slash is compared, so ``ring`` is close to every ring.

    >>> suggest("rings", ["ring", "naive"])
    'did you mean ring? (there are ring, naive)'
    >>> suggest("rings", ["ring", *"abcdef"])
    'did you mean ring? (of 7)'
    """
    names = list(known)
    listed = ", ".join(names)
    close = close_names(name, names)
    if not close:
        return f"there are {listed}{more}"
    others = f"there are {listed}" if len(names) <= MOST else f"of {len(names)}"
    return f"did you mean {' or '.join(close)}? ({others}{more})"


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that are most like ``name``, five at most: those that contain it before those spelt alike.

    >>> close_names("h100", ["dgx-h100", "dgx-a100", "H100-SXM"])
    ['dgx-h100', 'H100-SXM']
    """
    names = list(dict.fromkeys(known))
    family, _, last = name[:200].lower().rpartition("/")
    likeness = {one: _likeness(last, _last(one).lower()) for one in names}
    best = max(likeness.values(), default=0.0)
    found = [one for one in names if likeness[one] == best >= ALIKE]
    return ([one for one in found if one.rpartition("/")[0] == family] or found)[:MOST]


def _likeness(given: str, known: str) -> float:
    """Return the share of letters that two names have in common; 1 where the given one is a part of the other."""
    if len(given) >= PART and given in known:
        return 1.0
    return SequenceMatcher(None, known, given).ratio()


def _last(name: str) -> str:
    return name.rpartition("/")[2]
