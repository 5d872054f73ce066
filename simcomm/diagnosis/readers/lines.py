"""Lines of a text, without what launchers put before each: ranks, time stamps, names of pods."""

import re
from typing import NamedTuple

from simcomm.diagnosis.evidence.facts import FilePlace

PREFIXES = re.compile(
    r"^(?:\[\d+,\d+\]<std(?:out|err)>:\s?"  # mpirun --tag-output
    r"|\[pod/[^\]\s]+\]\s?"  # kubectl logs --prefix
    r"|[\w.-]+\s+\|\s"  # docker compose logs
    r"|\[\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\]]*\]\s?"  # NCCL_DEBUG_TIMESTAMP_FORMAT, --timestamp-output
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*\s"  # kubectl logs --timestamps, docker logs -t
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*\s+(?=\S+:\d+:\d+ \[)"
    r"|\d+: (?=\S+:\d+:\d+ \[|#|\s+\d+\s+\d+\s)"  # srun --label
    r"|\[?(?:default|rank)\d+\]?:\s?(?!\[E))+"  # torchrun --tee
)
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
