"""Read pasted texts line by line, and undo the changes that launchers, terminals and mail programs make to them."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from collectives.errors import InputError
from collectives.input_files import FileBytes, read_bytes
from collectives.records.kineto import unpack

UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # PowerShell writes it
HEADS = re.compile(
    r"(?:#\s*)?(?:nThread:?\s|Using devices|Rank\s+\d+\s+(?:Group|Pid)\s|size\s+count)|# (?:nccl|rccl)-tests version"
    r"|GPU \d+: .* \(UUID"
)
MOST_PREFIX, MOST_PREFIXES = 100, 8  # characters of a prefix; different prefixes of a file
MOST_MATCHED = 2000  # characters of a line that are read: the time of some patterns is quadratic
ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")
TYPESET = str.maketrans(
    {
        **dict.fromkeys("\u00a0\u2007\u2009\u202f\u3000", " "),
        **dict.fromkeys("\u2212\u2013", "-"),
        **dict.fromkeys("\u200b\u2060\ufeff"),
    }
)
ELEMENT_BYTES = {  # bytes per element of nccl-tests' types
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "half": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "int": 4, "float": 4, "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip
ROW_START = re.compile(rf"(?<![\w.])\d+[\s,;|]+\d+[\s,;|]+\"?(?:{'|'.join(ELEMENT_BYTES)})\b", re.ASCII)


class FilePlace(NamedTuple):
    """A line of a file, counted from 1. Line 0 represents the whole file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class PastedLine(NamedTuple):
    """A line with its number, counted from 1."""

    number: int
    text: str

    def place(self, file: str) -> FilePlace:
        return FilePlace(file, self.number)


def read_pasted(path: Path | str, most_bytes: int = FileBytes.USUAL) -> str:
    """Return the text of a file in UTF-8, UTF-16 or Latin-1, plain or gzipped. Raise InputError for other files."""
    content = unpack(Path(path), read_bytes(Path(path), most_bytes), most_bytes)
    if content[:2] in UTF_16:
        return content.decode("utf-16", errors="replace")
    if b"\0" in content[:4096]:
        raise InputError(f"{path}: a binary file; expected text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def clean(text: str) -> str:
    r"""Return a line without colors, with plain spaces and dashes, cut after ``MOST_MATCHED`` characters.

    >>> clean("\x1b[32mok\x1b[0m")
    'ok'
    """
    text = text[:MOST_MATCHED]
    return ESCAPES.sub("", text if text.isascii() else text.translate(TYPESET)).rstrip()


def number_lines(text: str) -> list[PastedLine]:
    """Return the cleaned lines of a text, numbered from 1. A launcher's prefix in front of a table is removed.

    >>> [line.text for line in number_lines("May 1 10:00:59 n0: # nThread 1\\nMay 1 10:01:00 n0:   8  2  float")]
    ['# nThread 1', '8  2  float']
    """
    lines = [PastedLine(number, clean(raw)) for number, raw in enumerate(text.splitlines(), start=1)]
    forms = tuple(_prefix_forms(line.text for line in lines))
    for at, line in enumerate(lines) if forms else ():
        match = next(filter(None, (form.match(line.text) for form in forms)), None)
        if match is not None:
            lines[at] = line._replace(text=line.text[match.end() :])
    return lines


def _prefix_forms(lines: Iterable[str]) -> Iterator[re.Pattern[str]]:
    """Yield a regular expression for each distinct text before a header line, at most ``MOST_PREFIXES``."""
    known = set[str]()
    for text in lines:
        match = HEADS.search(text[: MOST_PREFIX + MOST_MATCHED // 10]) if "NCCL " not in text else None
        prefix = text[: match.start()] if match else ""
        form = _form_of(prefix) if re.search(r"[^\s\d]", prefix) else ""
        if form and form not in known and len(known) < MOST_PREFIXES:
            known.add(form)
            yield re.compile(form)


def _form_of(prefix: str) -> str:
    parts = re.split(r"(\d+|\s+)", prefix.strip())
    patterns = (r"\d+" if part.isdecimal() else r"\s+" if part.isspace() else re.escape(part) for part in parts)
    return r"\s*" + "".join(patterns) + r"\s*"
