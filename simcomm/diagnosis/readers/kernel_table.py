"""The table that ``torch.profiler`` prints (``key_averages().table()``): which kernels take a GPU's time."""

import re
from collections.abc import Iterator

from simcomm.diagnosis.evidence.facts import Fact, KernelShare
from simcomm.diagnosis.readers.lines import LogLine

CELLS = re.compile(r"\s{2,}")
SHARE = re.compile(r"^Self (?:CUDA|XPU|HIP|Device) %$")
PERCENT = re.compile(r"^(\d{1,3}(?:\.\d+)?)%$")


def read(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield the share of each kernel in the time of all of them."""
    column, count = -1, 0
    for line in lines:
        cells = CELLS.split(line.text.strip())
        if cells[0] == "Name" and any(map(SHARE.match, cells)):
            column, count = next(at for at, cell in enumerate(cells) if SHARE.match(cell)), len(cells)
        elif column >= 0 and len(cells) == count and (found := PERCENT.match(cells[column])):
            yield KernelShare(line.place(file), cells[0], float(found[1]) / 100)
