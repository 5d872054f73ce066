"""Quote values and texts in messages: shortened, safe for terminals, with suggestions for misspelled names."""

import os
import signal
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from shlex import quote as shell_quote

from collectives.errors import shorten

MOST_LETTERS = 100
MOST_PRINTED = 1000  # characters of a text
MOST_QUOTED = 200  # characters of a line of a file, or of a line that a program prints
MOST_NAMED = 8  # names in one sentence
ALIKE = 0.6  # minimum similarity of two names, as a share of their letters
PART = 3  # minimum number of letters that are searched within a name
ACCEPTED = {  # error types of pydantic, described for a file
    "model_type": "must be a table",
    "list_type": "must be a list",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "string_too_short": "must not be empty",
}


def cut(text: str, most: int = MOST_LETTERS) -> str:
    """Return a text. If it has more than ``most`` characters, it is cut there and ends with "…"."""
    return text if len(text) <= most else f"{text[:most]}…"


def quote(value: object) -> str:
    """Return the ``repr`` of a value. After a hundred characters, it is cut and ends with "…".

    >>> quote("all_reduce"), len(quote("a" * 1000)) < 120
    ("'all_reduce'", True)
    """
    return shorten(value, MOST_LETTERS)


def describe_accepted(problem: str, message: str) -> str:
    """Return text such as `` must be an integer``, which follows an invalid value in an error message.

    ``problem`` and ``message`` are the type and the message of pydantic's validation error.

    >>> "4.5" + describe_accepted("int_type", "Input should be a valid integer")
    '4.5 must be an integer'
    >>> "'fast'" + describe_accepted("value_error", "Value error, give a number")
    "'fast': give a number"
    """
    if problem == "value_error":
        return f": {message.removeprefix('Value error, ')}"
    return f" {ACCEPTED.get(problem) or message.removeprefix('Input ').removeprefix('List ')}"


def name_some(names: Sequence[object], between: str = ", ") -> str:
    """Join up to eight names with ``between``. If there are more, add the number of omitted names.

    >>> name_some([1, 2, 4]), name_some(range(10))
    ('1, 2, 4', '0, 1, 2, 3, 4, 5, 6, 7 and 2 more')
    """
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return between.join(map(str, names[:MOST_NAMED])) + more


def name_ranks(ranks: Sequence[int]) -> str:
    """Return the ranks as text such as ``ranks 0, 2``.

    >>> name_ranks([3]), name_ranks([0, 2])
    ('rank 3', 'ranks 0, 2')
    """
    return f"rank{'s' if len(ranks) > 1 else ''} {name_some(ranks)}"


def name_signal(number: int) -> str:
    """Return the name of a signal, or text such as ``signal 40`` for a real-time signal, which has no name.

    >>> name_signal(9), name_signal(40)
    ('SIGKILL', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe_exit(status: int) -> str:
    """Describe the exit status of a process. A negative ``status`` is a signal, as in the subprocess module.

    >>> describe_exit(-9), describe_exit(3)
    ('was ended by SIGKILL', 'ended with status 3')
    """
    return f"was ended by {name_signal(-status)}" if status < 0 else f"ended with status {status}"


def quote_for_bash(text: str) -> str:
    r"""Return ``text`` quoted for bash. Characters that are not printable become escaped bytes.

    >>> quote_for_bash("a b"), quote_for_bash("a\u202eb")
    ("'a b'", "$'a\\xe2\\x80\\xaeb'")
    """
    if text.isprintable():
        return shell_quote(text)
    escapes = {letter: "".join(f"\\x{byte:02x}" for byte in os.fsencode(letter)) for letter in text}
    escapes |= {letter: letter for letter in text if letter.isprintable()} | {"\\": "\\\\", "'": "\\'"}
    return f"$'{''.join(map(escapes.__getitem__, text))}'"


def make_printable(text: str, keep: str = "", most: int = MOST_PRINTED) -> str:
    r"""Return text in one line, with all characters that are not printable escaped as in Python.

    These include line ends, escape sequences, bidirectional marks and surrogates. Characters in ``keep`` are not
    escaped. If a text has more than ``most`` characters, its middle is replaced by the number of omitted characters.

    >>> make_printable("a\x1b[31mred")
    'a\\x1b[31mred'
    """
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]} ... {len(text) - 2 * half:,} letters ... {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else repr(letter)[1:-1] for letter in text)


def suggest(name: str, known: Iterable[str], more: str = "") -> str:
    """Return the advice for an unknown name: similar known names, or all known names. ``more`` is added to them.

    If there are similar names, all names are listed only if there are at most eight. In names such as
    ``all_reduce/ring``, only the part after the slash is compared. Therefore, ``ring`` is similar to the ring of every
    collective.

    >>> suggest("rings", ["ring", "naive"])
    'did you mean ring? (choices: ring, naive)'
    >>> suggest("rings", ["ring", *"abcdefgh"])
    'did you mean ring? (9 choices)'
    """
    names = list(known)
    listed = ", ".join(names)
    close = close_names(name, names)
    if not close:
        return f"choose one of {listed}{more}"
    others = f"choices: {listed}" if len(names) <= MOST_NAMED else f"{len(names)} choices"
    return f"did you mean {' or '.join(close)}? ({others}{more})"


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to eight known names that are most similar to ``name``. The list is empty if no name is similar.

    >>> close_names("h100", ["dgx-h100", "dgx-a100", "H100-SXM"])
    ['dgx-h100', 'H100-SXM']
    """
    names = list(dict.fromkeys(known))
    family, _, last = name[:200].lower().rpartition("/")
    likeness = {name: _likeness(last, name.rpartition("/")[2].lower()) for name in names}
    best = max(likeness.values(), default=0.0)
    candidates = [name for name in names if likeness[name] == best >= ALIKE]
    return ([name for name in candidates if name.rpartition("/")[0] == family] or candidates)[:MOST_NAMED]


def _likeness(text: str, known: str) -> float:
    if len(text) >= PART and text in known:
        return 1.0
    return SequenceMatcher(None, known, text).ratio()
