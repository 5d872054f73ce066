"""Lines of a text, without what launchers put before each: ranks, time stamps, names of pods."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from simcomm.diagnosis.evidence.facts import FilePlace

PREFIXES = re.compile(
    r"^(?:\[\d+,\d+\]<std(?:out|err)>:\s?"  # mpirun --tag-output
    r"|\[pod/[^\]\s]+\]\s?"  # kubectl logs --prefix
    r"|[\w.-]+\s+\|\s"  # docker compose logs
    r"|\[\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\]]*\]\s?"  # NCCL_DEBUG_TIMESTAMP_FORMAT, --timestamp-output
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*\s"  # kubectl logs --timestamps, docker logs -t
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*\s+(?=\S+:\d+:\d+ \[)"
    r"|\[?(?:default|rank)\d+\]?:\s?(?!\[E))+"  # torchrun --tee
)
HEADS = re.compile(
    r"#\s+(?:nThread\s|Using devices|Rank\s+\d|size\s+count)|# (?:nccl|rccl)-tests version|GPU \d+: .* \(UUID"
)
MOST_PREFIX, MOST_PREFIXES = 100, 8  # letters; forms of a file
MOST_MATCHED = 2000  # letters of a line, in which it has said what it is; patterns may look at it from each
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class LogLine(NamedTuple):
    """A line by its number, counted from 1."""

    number: int
    text: str

    def place(self, file: str) -> FilePlace:
        """Return where it is."""
        return FilePlace.of(file, self.number, self.text)


def clean(text: str) -> str:
    r"""Return the beginning of a line without colours and a launcher's prefix.

    >>> clean("[1,0]<stdout>:# Rank  0"), clean("\x1b[32mok\x1b[0m"), clean("[pod/a/b] 2026-11-28T05:00:00Z # Rank")
    ('# Rank  0', 'ok', '# Rank')
    """
    return PREFIXES.sub("", ESCAPES.sub("", text[:MOST_MATCHED])).rstrip()


def number_lines(raw: Iterable[str]) -> list[LogLine]:
    """Return the lines of a text, cleaned, and without what stands before the head of a table on all lines there.

    So any launcher, collector of logs or mail is understood, whatever it puts before a line; numbers in it may change.

    >>> [line.text for line in number_lines(["May 1 10:00:59 n0: # nThread 1", "May 1 10:01:00 n0:   8  2  float"])]
    ['# nThread 1', '8  2  float']
    """
    forms: dict[str, re.Pattern[str]] = {}
    lines = []
    for number, text in enumerate(map(clean, raw), start=1):
        found = HEADS.search(text[: MOST_PREFIX + MOST_MATCHED // 10]) if "# " in text or "GPU" in text else None
        if found is not None and text[: found.start()].strip() and len(forms) < MOST_PREFIXES:
            form = _form_of(text[: found.start()])
            forms.setdefault(form, re.compile(form))
        lines.append(LogLine(number, text))
    for at, line in enumerate(lines) if forms else ():
        found = next(filter(None, (form.match(line.text) for form in forms.values())), None)
        if found is not None:
            lines[at] = line._replace(text=line.text[found.end() :])
    return lines


def _form_of(prefix: str) -> str:
    r"""Return a pattern of what a launcher puts before each line: any numbers, and any width of what is between.

    >>> bool(re.match(_form_of(" 0: "), "12: 8")), bool(re.match(_form_of("[n1] "), "[x1] 8"))
    (True, False)
    """
    parts = re.split(r"(\d+|\s+)", prefix.strip())
    said = (r"\d+" if part.isdecimal() else r"\s+" if part.isspace() else re.escape(part) for part in parts)
    return r"\s*" + "".join(said) + r"\s*"
