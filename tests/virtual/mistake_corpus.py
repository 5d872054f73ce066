"""The corpus of programs that test the diagnosis: each program's options, and the findings that it must produce.

A file of the corpus has one section per program, which begins with ``# === NAME, N ranks[, OPTIONS][: KIND[: TEXT]]``.
With 0 ranks, the program starts its ranks itself. ``IMPORTS`` are its first lines, and ``INIT`` if it does not
initialize torch.distributed. A correct program must have no findings. A wrong program must have a finding of this kind
(``A or B``: either of them) that contains the text. ``# reported: 0-1; 3`` at the end of a line names the ranks that a
finding must report for this line; ``# reported`` alone means any ranks. Virtual ranks refuse the programs in
``refused``.

``# fix: CODE`` applies the finding's advice: CODE replaces the line that it ends, or deletes it if CODE is empty. On a
line of its own, it adds CODE.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtual.ranks.finding import ProgramFinding

FOLDER = Path(__file__).parent / "virtual_programs"
SECTION = re.compile(
    r"^# === (\w+), (\d+) ranks(?:, (--[^:\n]*))?(?:, args ([^:\n]*))?(?:: ([^:\n]*)(?:: (.*))?)?$", re.MULTILINE
)
IMPORTS = """import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
"""
INIT = """dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
"""
REPORTED = re.compile(r"# reported(?:: (?P<ranks>[-0-9,; ]+?))?(?:  # fix:.*)?$")
FIX = re.compile(r"(?P<indent> *)(?P<code>.*?) *# fix:(?: (?P<fix>.*))?$")


@dataclass(frozen=True)
class CorpusProgram:
    """A program of the corpus, with its options as fields of ``VirtualOptions``.

    ``kinds`` are the expected kinds of findings, of which one must be found: it may depend on the order of ranks.
    """

    name: str
    ranks: int
    options: dict[str, Any]
    arguments: list[str]
    kinds: list[str]
    quote: str  # part of the finding's text
    text: str

    @property
    def expected(self) -> list[tuple[int, tuple[int, ...] | None]]:
        """The lines that findings must name, each with its ranks, or None for any ranks."""
        pairs: list[tuple[int, tuple[int, ...] | None]] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            mark = REPORTED.search(line)
            if mark:
                pairs += [(number, part) for part in map(read_ranks, (mark["ranks"] or "").split(";"))]
        return pairs

    def write(self, folder: Path, is_fixed: bool = False) -> Path:
        lines: list[str] = []
        for line in self.text.splitlines():
            change = FIX.match(line) if is_fixed else None
            if change is None:
                lines.append(line)
            elif change["fix"]:
                lines.append(change["indent"] + change["fix"])
        path = folder / f"{self.name}.py"
        path.write_text("\n".join(lines) + "\n")
        return path

    def find_missing(self, findings: tuple[ProgramFinding, ...]) -> list[str]:
        mine = [finding for finding in findings if finding.kind in self.kinds and self.quote in finding.text]
        if not mine:
            return [f"{self.kinds} {self.quote}: {[finding.text for finding in findings]}"]
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


def read_programs(folder: Path) -> dict[str, CorpusProgram]:
    programs = []
    for file in sorted(folder.glob("*.py")):
        _, *parts = SECTION.split(file.read_text())
        for name, ranks, options, arguments, kinds, quote, code in zip(*[iter(parts)] * 7, strict=True):
            text = IMPORTS + ("" if "init_process_group" in code or ranks == "0" else INIT) + code.lstrip("\n")
            words = shlex.split(options or "")
            chosen: dict[str, Any] = {word: True for word in ("strict", "gpu", "fake") if f"--{word}" in words}
            chosen |= {"acts_as": words[words.index("--as") + 1]} if "--as" in words else {}
            chosen |= {"per_node": int(words[words.index("--per-node") + 1])} if "--per-node" in words else {}
            expected = (kinds or "").split(" or ")
            words = shlex.split(arguments or "")
            programs.append(CorpusProgram(name, int(ranks), chosen, words, expected, quote or "", text))
    return {program.name: program for program in programs}


RIGHT, WRONG, REFUSED = (read_programs(FOLDER / name) for name in ("right", "wrong", "refused"))
