"""Read the output of nvidia-smi: the GPUs that it lists, and the paths of ``nvidia-smi topo -m``."""

import re
from collections.abc import Iterator

from collectives.errors import InputError
from simcomm.nccl.machine_files.facts import Fact, GpuSeen, PathMatrix
from simcomm.nccl.pasted import PastedLine

LISTED = re.compile(r"^GPU (\d+): (.+?) \(UUID|^\|\s+(\d+)\s+(\S.*?)\s+(?:On|Off)\s+\|")  # with -L, and without options
NAME = re.compile(r"GPU\d{1,4}|NIC\d{1,4}|mlx\S*|bnxt\S*|rdma\S*|irdma\S*|efa\S*|ib\d+|rocep\S*|ibp\S*")
CELL = re.compile(r"X|NV\d{1,2}|PIX|PXB|PXN|PHB|NODE|SYS|SOC|XGMI|PCIE|C2C")
P2P_TABLE = re.compile(r"^\s*GPU\d.*\s(?:OK|CNS|GNS|TNS|NS|U)(?:\s|$)")
OLD = {"SOC": "SYS"}


def read(file: str, lines: list[PastedLine]) -> Iterator[Fact]:
    """Yield the GPUs and the paths between them. Raise InputError if a table of paths is invalid or incomplete."""
    for at, line in enumerate(lines):
        if "NCCL INFO" not in line.text and (match := LISTED.match(line.text)):
            yield GpuSeen(line.place(file), int(match[1] or match[3]), (match[2] or match[4]).rstrip("."))
        words = line.text.split()
        is_head = words[:1] == ["GPU0"] and (len(words) == 1 or not CELL.fullmatch(words[1]))
        if is_head and not any(P2P_TABLE.match(row.text) for row in lines[at + 1 : at + 3]):  # of topo -p2p
            yield _read_path_matrix(file, lines, at)


def _read_path_matrix(file: str, lines: list[PastedLine], at: int) -> PathMatrix:
    names = []
    for word in lines[at].text.split():
        if not NAME.fullmatch(word):
            break
        names.append(word)
    cells: dict[tuple[str, str], str] = {}
    rows = [line for line in lines[at + 1 : at + 1 + 2 * len(names)] if line.text.strip()]
    for name, line in zip(names, rows, strict=False):
        words = line.text.split()
        kinds = words[1 : len(names) + 1]
        wrong = next((cell for cell in kinds if not CELL.fullmatch(cell)), None)
        if words[0] != name or len(kinds) < len(names) or wrong is not None:
            raise InputError(
                f"{line.place(file)}: the row of {name} must have {len(names)} of X, NV#, PIX, PXB, PHB, NODE and SYS"
                f"{f', not {wrong!r}' if wrong else ''}"
            )
        cells |= {(name, other): OLD.get(cell, cell) for other, cell in zip(names, kinds, strict=True) if cell != "X"}
    if len(rows) < len(names):
        raise InputError(
            f"{lines[at].place(file)}: the table has {len(names)} columns, but only {len(rows)} rows; paste all rows"
        )
    gpus = tuple(name for name in names if name.startswith("GPU"))
    return PathMatrix(lines[at].place(file), gpus, tuple(name for name in names if name not in gpus), cells)
