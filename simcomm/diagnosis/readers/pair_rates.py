"""Matrices of GB/s between each two GPUs, as p2pBandwidthLatencyTest prints them."""

import re
from collections.abc import Iterator

from collectives.errors import InputError
from simcomm.diagnosis.evidence.facts import Complaint, Fact, PairRates
from simcomm.diagnosis.readers.lines import LogLine

TITLE = re.compile(r"^\s*((?:Uni|Bi)directional P2P=(?:Enabled|Disabled).*Bandwidth.*Matrix \(GB/s\))")
ROW = re.compile(r"^\s*(\d{1,3})((?:\s+\d{1,6}(?:\.\d+)?)+)\s*$")
REFUSED = re.compile(r"Device=\d+ CANNOT Access Peer Device=\d+")


def read(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield each matrix with P2P on. Raise InputError where a row has another length than the first."""
    for at, line in enumerate(lines):
        if REFUSED.search(line.text):
            yield Complaint(line.place(file), "peer-cannot")
        if (found := TITLE.match(line.text)) and "P2P=Enabled" in found[1] and "Latency" not in found[1]:
            yield _read_matrix(file, lines, at, found[1])


def _read_matrix(file: str, lines: list[LogLine], at: int, title: str) -> PairRates:
    rows: list[tuple[float, ...]] = []
    for line in lines[at + 2 :]:
        found = ROW.match(line.text)
        if found is None or int(found[1]) != len(rows):
            break
        rows.append(tuple(map(float, found[2].split())))
        if len(rows[-1]) != len(rows[0]):
            raise InputError(f"{file}: line {line.number}: {len(rows[-1])} rates; the first row has {len(rows[0])}")
    if not rows or len(rows) != len(rows[0]):
        raise InputError(f"{file}: line {lines[at].number}: the matrix below has {len(rows)} rows; it is not square")
    return PairRates(lines[at].place(file), title, tuple(rows))
