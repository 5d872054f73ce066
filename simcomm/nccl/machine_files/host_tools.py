"""Read the output of host tools: lspci, ibstat, ibv_devinfo, ethtool, nvidia-smi, and ``nvidia-smi topo -m``."""

import re
from collections.abc import Iterator

from collectives.errors import InputError
from simcomm.nccl.machine_files.facts import Fact, GpuSeen, PathMatrix, PcieSlot, Port
from simcomm.nccl.machine_files.topology_xml import GT
from simcomm.nccl.pasted import PastedLine

DEVICE = re.compile(r"^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*)$")
ABILITY = re.compile(r"LnkCap:.*Speed ([\d.]+)GT/s.*Width x(\d+)")
STATE = re.compile(r"LnkSta:\s*Speed ([\d.]+)GT/s(?: \(\w+\))?, Width x(\d+)")
PORT = re.compile(r"^\s*(?:CA '([^']+)'|InfiniBand device '([^']+)' port \d+ status:|hca_id:\s*(\S+))", re.IGNORECASE)
RATE = re.compile(r"^\s*[Rr]ate:\s*(\d+(?:\.\d+)?)(?:\s|$)")
UP = re.compile(r"^\s*[Ss]tate:\s*(?:\d: )?(\w+)")
LAYER = re.compile(r"^\s*(?:[Ll]ink[ _]layer):\s*(\w+)")
SPEED = re.compile(r"^\s*Speed: (\d+)Mb/s")
OF_ETHTOOL = re.compile(r"^Settings for (\S+):|^NIC statistics(?: for (\S+))?")
LISTED = re.compile(r"^GPU (\d+): (.+?) \(UUID|^\|\s+(\d+)\s+(\S.*?)\s+(?:On|Off)\s+\|")  # with -L, and without options
QUERIED = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])$")
QUERIED_NAME = re.compile(r"^\s+Product Name\s*:\s*(\S.*)")
QUERIED_LINK = re.compile(r"^\s+(Max|Current)\s*:\s*(\d{1,2})x$")
NAME = re.compile(r"GPU\d{1,4}|NIC\d{1,4}|mlx\S*|bnxt\S*|rdma\S*|irdma\S*|efa\S*|ib\d+|rocep\S*|ibp\S*")
CELL = re.compile(r"X|NV\d{1,2}|PIX|PXB|PXN|PHB|NODE|SYS|SOC|XGMI|PCIE|C2C")
P2P_TABLE = re.compile(r"^\s*GPU\d.*\s(?:OK|CNS|GNS|TNS|NS|U)(?:\s|$)")
OLD = {"SOC": "SYS"}


def read(file: str, lines: list[PastedLine]) -> Iterator[Fact]:
    """Yield the slots, ports, GPUs and paths that the tools list.

    Raise InputError if a table of paths is invalid or incomplete.
    """
    yield from _slots(file, lines)
    yield from _ports(file, lines)
    yield from _queried(file, lines)
    for line in lines:
        if "NCCL INFO" not in line.text and (match := LISTED.match(line.text)):
            yield GpuSeen(line.place(file), int(match[1] or match[3]), (match[2] or match[4]).rstrip("."))
    yield from _paths(file, lines)


def _slots(file: str, lines: list[PastedLine]) -> Iterator[Fact]:
    bus, name, can = "", "", (0, 0)
    for line in lines:
        if match := DEVICE.match(line.text):
            bus, name, can = match[1], match[2], (0, 0)
        elif match := ABILITY.search(line.text):
            can = GT.get(match[1], 0), int(match[2])
        elif match := STATE.search(line.text):
            generation, lanes = can[0] or GT.get(match[1], 0), can[1] or int(match[2])
            yield PcieSlot(line.place(file), bus, _kind(name), generation, lanes, name[:80])


def _kind(name: str) -> str:
    words = name.lower()
    if "nvidia" in words or "[amd/ati]" in words or "instinct" in words:
        return "gpu"
    return "nic" if "mellanox" in words or "infiniband" in words or "ethernet" in words else "bridge"


def _ports(file: str, lines: list[PastedLine]) -> Iterator[Fact]:
    name, rate, up, layer, last = "", 0.0, False, "", None
    for line in lines:
        if match := PORT.match(line.text):
            if name and last is not None:
                yield Port(last.place(file), name, rate, up, layer == "Ethernet")
            name, rate, up, layer, last = match[1] or match[2] or match[3], 0.0, False, "", None
        elif name and (match := RATE.match(line.text)):
            rate, last = float(match[1]), line
        elif name and (match := UP.match(line.text)):
            up = match[1].lower() == "active"
        elif name and (match := LAYER.match(line.text)):
            layer = match[1]
    if name and last is not None:
        yield Port(last.place(file), name, rate, up, layer == "Ethernet")
    name = ""
    for line in lines:
        if match := OF_ETHTOOL.match(line.text):
            name = match[1] or match[2] or name
        elif match := SPEED.match(line.text):
            yield Port(line.place(file), name or "NIC", float(match[1]) / 1e3, True, True)


def _queried(file: str, lines: list[PastedLine]) -> Iterator[Fact]:
    """Yield the GPUs and slots that nvidia-smi lists. The generation in use is ignored: idle GPUs use generation 1."""
    bus, number, can = "", -1, 0
    for line in lines:
        if match := QUERIED.match(line.text):
            bus, number, can = match[1], number + 1, 0
        elif not bus:
            continue
        elif match := QUERIED_NAME.match(line.text):
            yield GpuSeen(line.place(file), number, match[1])
        elif match := QUERIED_LINK.match(line.text):
            if match[1] == "Current" and can:
                yield PcieSlot(line.place(file), bus, "gpu", 0, can)
            can = int(match[2]) if match[1] == "Max" else can


def _paths(file: str, lines: list[PastedLine]) -> Iterator[Fact]:
    for at, line in enumerate(lines):
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
            f"{lines[at].place(file)}: {len(names)} devices, but only {len(rows)} rows follow; paste the whole table"
        )
    gpus = tuple(name for name in names if name.startswith("GPU"))
    return PathMatrix(lines[at].place(file), gpus, tuple(name for name in names if name not in gpus), cells)
