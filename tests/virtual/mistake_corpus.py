"""The corpus of programs that test the diagnosis: each program's options, and the findings that it must produce.

A correct program must have no findings. A wrong one names the expected kind in ``# kind:`` (``A or B``: either). ``#
reported: 0-1; 3`` at the end of a line names the ranks that the finding must report there; ``# reported`` alone: any
ranks. Both may have ``# ranks:`` (0: the program starts them itself), ``# args:`` and ``# options:`` of the command.

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
HEADER = re.compile(r"^# (ranks|kind|args|options|parameters): (.*)$", re.MULTILINE)
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
    def said(self) -> dict[str, str]:
        """The fields of its header."""
        return dict(HEADER.findall(self.text))

    @property
    def ranks(self) -> int:
        return int(self.said["ranks"])

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.said.get("args", ""))

    @property
    def options(self) -> dict[str, Any]:
        """Its options as fields of ``VirtualOptions``."""
        words = shlex.split(self.said.get("options", ""))
        options: dict[str, Any] = {name: True for name in ("strict", "gpu") if f"--{name}" in words}
        if "--as" in words:
            options["acts_as"] = words[words.index("--as") + 1]
        if "--per-node" in words:
            options["per_node"] = int(words[words.index("--per-node") + 1])
        return options

    @property
    def has_unlike_parameters(self) -> bool:
        """Whether ranks hold other parameters of one name on purpose, as those of layers that are split up."""
        return "split" in self.said.get("parameters", "")

    @property
    def kinds(self) -> list[str]:
        """The kinds of which one must be told; which one may depend on who comes first."""
        return [kind.strip() for kind in self.said["kind"].split(" or ")]

    @property
    def told(self) -> list[tuple[int, tuple[int, ...] | None]]:
        """The lines that must be told, with their ranks where it matters."""
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

    def find_untold(self, findings: tuple[ProgramFinding, ...]) -> list[str]:
        """Return what should have been told and was not."""
        mine = [finding for finding in findings if finding.kind in self.kinds]
        if not mine:
            return [f"{self.kinds}: {[finding.text for finding in findings]}"]
        reported = {
            (place.site.line, place.ranks) for finding in mine for place in finding.places if place.site is not None
        }
        lines = {line for line, _ in reported}
        missing = [
            expected
            for expected in self.told
            if expected not in reported and not (expected[1] is None and expected[0] in lines)
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
