"""Matrices between GPUs: what joins each two (``nvidia-smi topo -m``), and GB/s (p2pBandwidthLatencyTest)."""

import re
from collections.abc import Iterator

from collectives.errors import InputError
from simcomm.diagnosis.evidence.facts import Complaint, Fact, PairRates, PathMatrix
from simcomm.diagnosis.readers.lines import LogLine

HEAD = re.compile(r"^\s*(?:GPU0)(?:\s+\S+)*")
NAME = re.compile(r"GPU\d{1,4}|NIC\d{1,4}|mlx\S*|bnxt\S*|rdma\S*|irdma\S*|efa\S*|ib\d+|rocep\S*|ibp\S*")
CELL = re.compile(r"X|NV\d{1,2}|PIX|PXB|PXN|PHB|NODE|SYS|SOC|XGMI|PCIE|C2C")
P2P_STATUS = re.compile(r"^\s*GPU\d.*\s(?:OK|CNS|GNS|TNS|NS|U)(?:\s|$)")
OLD = {"SOC": "SYS"}
TITLE = re.compile(r"^\s*((?:Uni|Bi)directional P2P=(?:Enabled|Disabled).*Bandwidth.*Matrix \(GB/s\))")
ROW = re.compile(r"^\s*(\d{1,3})((?:\s+\d{1,6}(?:\.\d+)?)+)\s*$")
REFUSED = re.compile(r"Device=\d+ CANNOT Access Peer Device=\d+")


def read_paths(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield each matrix. Raise InputError that names the line where one is not whole."""
    for at, line in enumerate(lines):
        words = line.text.split()
        is_head = words[:1] == ["GPU0"] and (len(words) == 1 or not CELL.fullmatch(words[1]))
        if is_head and not any(P2P_STATUS.match(row.text) for row in lines[at + 1 : at + 3]):  # topo -p2p: in devices
            yield _read_path_matrix(file, lines, at)


def _read_path_matrix(file: str, lines: list[LogLine], at: int) -> PathMatrix:
    names = []
    for word in lines[at].text.split():
        if not NAME.fullmatch(word):
            break
        names.append(word)
    cells: dict[tuple[str, str], str] = {}
    rows = [line for line in lines[at + 1 : at + 1 + 2 * len(names)] if line.text.strip()]
    for name, line in zip(names, rows, strict=False):
        found = line.text.split()
        given = found[1 : len(names) + 1]
        wrong = next((cell for cell in given if not CELL.fullmatch(cell)), None)
        if found[0] != name or len(given) < len(names) or wrong is not None:
            raise InputError(
                f"{file}: line {line.number}: the row of {name} should have {len(names)} of X, NV#, PIX, PXB, PHB, "
                f"NODE and SYS{f', not {wrong!r}' if wrong else ''}"
            )
        cells |= {(name, other): OLD.get(cell, cell) for other, cell in zip(names, given, strict=True) if cell != "X"}
    if len(rows) < len(names):
        raise InputError(f"{file}: line {lines[at].number}: {len(names)} devices, and {len(rows)} rows below")
    gpus = tuple(name for name in names if name.startswith("GPU"))
    return PathMatrix(lines[at].place(file), gpus, tuple(name for name in names if name not in gpus), cells)


def read_rates(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield each matrix with P2P on. Raise InputError where a row has another length than the first."""
    for at, line in enumerate(lines):
        if REFUSED.search(line.text):
            yield Complaint(line.place(file), "peer-cannot")
        if (found := TITLE.match(line.text)) and "P2P=Enabled" in found[1] and "Latency" not in found[1]:
            yield _read_rate_matrix(file, lines, at, found[1])


def _read_rate_matrix(file: str, lines: list[LogLine], at: int, title: str) -> PairRates:
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
