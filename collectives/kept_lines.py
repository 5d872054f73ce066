"""Files to which a line of JSON is added with every answer, so that one that was stopped goes on with what is there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from collectives.errors import InputError
from collectives.input_files import read_kept_text
from collectives.output_files import append_text, write_text

BEGIN = '{"key": "'  # of every line

T = TypeVar("T")


def read_kept_lines(path: Path, read_line: Callable[[str, int], T], most_bytes: int) -> list[T]:
    """Return what the lines of a file say, which is made where there is none.

    ``read_line`` gets a line and its number, and raises InputError for one that is none of ours. A last line that its
    writer left half done is cut off, and a whole one that only lacks its end gets it; a file that has anything else in
    it is left as it is. Raises InputError.
    """
    if not path.exists():
        write_text(path, "")
        return []
    *whole, last = read_kept_text(path, most_bytes).split("\n")
    found = [read_line(line, number) for number, line in enumerate(whole, start=1)]
    if last:
        try:
            found.append(read_line(last, len(whole) + 1))
        except InputError:
            if not _is_half_done(last):
                raise
            write_text(path, "".join(f"{line}\n" for line in whole))
        else:
            append_text(path, "\n")
    return found


def _is_half_done(line: str) -> bool:
    """Return whether a line begins as all do and its JSON has no end.

    >>> [_is_half_done(line) for line in ('{"ke', '{"key": "k", "no', '{"key": "k"}', '{"key": "k"} and more', "[1")]
    [True, True, False, False, False]
    """
    if not (line.startswith(BEGIN) or BEGIN.startswith(line)):
        return False
    try:
        json.JSONDecoder().raw_decode(line)
    except json.JSONDecodeError:
        return True
    except (ValueError, RecursionError):  # numbers of thousands of digits, or very deep lists: no line of ours
        pass
    return False
