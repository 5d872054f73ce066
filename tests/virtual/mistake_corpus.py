"""The corpus of programs that test the diagnosis: each program's options, and the findings that it must produce.

A correct program must have no findings. A wrong program names the expected kind of finding in ``# kind:`` (``A or B``:
either of them). ``# reported: 0-1; 3`` at the end of a line names the ranks that a finding must report for this line;
``# reported`` alone means any ranks. All programs may have ``# ranks:`` (0: the program starts its ranks itself),
``# args:``, and ``# options:`` of the command.

``# fix: CODE`` applies the finding's advice: CODE replaces the line that it ends, or deletes it if CODE is empty. On a
line of its own, it adds CODE.
"""

import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from virtual.ranks.finding import ProgramFinding

FOLDER = Path(__file__).parent / "virtual_programs"
HEADER = re.compile(r"^# (ranks|kind|args|options): (.*)$", re.MULTILINE)
REPORTED = re.compile(r"# reported(?:: (?P<ranks>[-0-9,; ]+?))?(?:  # fix:.*)?$")
FIX = re.compile(r"(?P<indent> *)(?P<code>.*?) *# fix:(?: (?P<fix>.*))?$")


@dataclass(frozen=True)
class CorpusProgram:
    """A program of the corpus."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def header(self) -> dict[str, str]:
        """The fields of the program's header."""
        return dict(HEADER.findall(self.text))

    @property
    def ranks(self) -> int:
        return int(self.header["ranks"])

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.header.get("args", ""))

    @property
    def options(self) -> dict[str, Any]:
        """The program's options as fields of ``VirtualOptions``."""
        words = shlex.split(self.header.get("options", ""))
        options: dict[str, Any] = {name: True for name in ("strict", "gpu") if f"--{name}" in words}
        if "--as" in words:
            options["acts_as"] = words[words.index("--as") + 1]
        if "--per-node" in words:
            options["per_node"] = int(words[words.index("--per-node") + 1])
        return options

    @property
    def kinds(self) -> list[str]:
        """The expected kinds, of which one must be found. It may depend on the order of ranks."""
        return [kind.strip() for kind in self.header["kind"].split(" or ")]

    @property
    def expected(self) -> list[tuple[int, tuple[int, ...] | None]]:
        """The lines that findings must name, each with its ranks, or None for any ranks."""
        pairs: list[tuple[int, tuple[int, ...] | None]] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            mark = REPORTED.search(line)
            if mark:
                pairs += [(number, part) for part in map(read_ranks, (mark["ranks"] or "").split(";"))]
        return pairs

    @property
    def fixed(self) -> str:
        """The program changed as its finding advises."""
        lines: list[str] = []
        for line in self.text.splitlines():
            change = FIX.match(line)
            if change is None:
                lines.append(line)
            elif change["fix"]:
                lines.append(change["indent"] + change["fix"])
        return "\n".join(lines) + "\n"

    def find_missing(self, findings: tuple[ProgramFinding, ...]) -> list[str]:
        """Return the expected kinds and lines that no finding names."""
        mine = [finding for finding in findings if finding.kind in self.kinds]
        if not mine:
            return [f"{self.kinds}: {[finding.text for finding in findings]}"]
        reported = {
            (place.site.line, place.ranks) for finding in mine for place in finding.places if place.site is not None
        }
        lines = {line for line, _ in reported}
        missing = [
            place for place in self.expected if place not in reported and not (place[1] is None and place[0] in lines)
        ]
        return [f"line {line} of ranks {ranks}: {mine[0].text}" for line, ranks in missing]


def read_ranks(text: str) -> tuple[int, ...] | None:
    """Return the ranks of a text such as "0-2, 5"; None of an empty one.

    >>> read_ranks("0-2, 5"), read_ranks("")
    ((0, 1, 2, 5), None)
    """
    ranks: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first:
            ranks += range(int(first), int(last or first) + 1)
    return tuple(ranks) or None


RIGHT = tuple(CorpusProgram(path) for path in sorted((FOLDER / "right").glob("*.py")))
WRONG = tuple(CorpusProgram(path) for path in sorted((FOLDER / "wrong").glob("*.py")))
