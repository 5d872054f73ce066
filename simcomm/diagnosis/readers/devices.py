"""What a host says of its GPUs, NICs and slots: lspci, ibstat, ibv_devinfo, ethtool, nvidia-smi, the kernel.

Matrices say what joins each two GPUs (``nvidia-smi topo -m``), and with how many GB/s (p2pBandwidthLatencyTest).
"""

import re
from collections.abc import Iterator

from collectives.errors import InputError
from simcomm.diagnosis.evidence.facts import (
    ActiveMtu,
    Complaint,
    Counter,
    Fact,
    Gid,
    GpuSeen,
    LinkState,
    PairRates,
    PathMatrix,
    PcieSlot,
    Port,
)
from simcomm.diagnosis.readers.lines import LogLine
from simcomm.diagnosis.readers.topology_xml import GT

DEVICE = re.compile(r"^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*)$")
ABILITY = re.compile(r"LnkCap:.*Speed ([\d.]+)GT/s.*Width x(\d+)")
STATE = re.compile(r"LnkSta:\s*Speed ([\d.]+)GT/s(?: \(\w+\))?, Width x(\d+)")
ACS = re.compile(r"ACSCtl:\s*SrcValid([+-])")
PORT = re.compile(r"^\s*(?:CA '([^']+)'|InfiniBand device '([^']+)' port \d+ status:|hca_id:\s*(\S+))", re.IGNORECASE)
RATE = re.compile(r"^\s*[Rr]ate:\s*(\d+(?:\.\d+)?)(?:\s|$)")
UP = re.compile(r"^\s*[Ss]tate:\s*(?:\d: )?(\w+)")
LAYER = re.compile(r"^\s*(?:[Ll]ink[ _]layer):\s*(\w+)")
SPEED = re.compile(r"^\s*Speed: (\d+)Mb/s")
OF_ETHTOOL = re.compile(r"^Settings for (\S+):|^NIC statistics(?: for (\S+))?")
LISTED = re.compile(
    r"^GPU (\d+): (.+?) \(UUID|^\|\s+(\d+)\s+(\S.*?)\s+(?:On|Off)\s+\|"
)  # -L, and the table without options
QUERIED = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])$")
QUERIED_NAME = re.compile(r"^\s+Product Name\s*:\s*(\S.*)")
QUERIED_LINK = re.compile(r"^\s+(Max|Current)\s*:\s*(\d{1,2})(x?)$")
POWER_LIMIT = re.compile(r"^\s+(Current Power|Power|Default Power) Limit\s*:\s*(\d{1,5}(?:\.\d+)?) W")
ECC_CELL = re.compile(r"^\|\s+\d+\s.*\|.*\|\s+([1-9]\d{0,8})\s+\|$")
BOOTED = re.compile(r"BOOT_IMAGE=|intel_iommu=on|amd_iommu=on")
THROTTLED = re.compile(
    r"(HW Slowdown|HW Thermal Slowdown|HW Power Brake Slowdown|SW Thermal Slowdown|SW Power Cap)\s*:\s*Active\b"
)
COUNTED = re.compile(
    r"(rx_discards_phy|tx_discards_phy|out_of_sequence|packet_seq_err|local_ack_timeout_err|rnr_nak_retry_err|"
    r"rx_prio\d_discards?|symbol_error\w*|link_downed\w*|roce_adp_retrans|rx_out_of_buffer|rx_crc_errors_phy|"
    r"SymbolErrors|LinkDowned|PortRcvErrors)\s*[:=.]+\s*(\d{1,18})\b"
)
QUEUED = re.compile(r"^qdisc \S+ \S+ (?:dev (\S+) )?")
DROPPED = re.compile(r"\(dropped (\d{1,18}),")
ECC = re.compile(r"(?:Volatile )?(?:DRAM|SRAM|Double Bit|Aggregate)?\s*Uncorrectable\s*:\s*([1-9]\d{0,8})\b")
P2P_STATUS = re.compile(r"^\s*GPU\d+(?:\s+(?:X|OK|CNS|GNS|TNS|NS|U))+\s*$")
NIC_NAME = re.compile(r"^\s*hca_id:\s*(\S+)")
GID = re.compile(r"^\s*GID\[\s*(\d{1,4})\]:\s*([0-9a-fA-F:.]{2,45})")
GID_SHOWN = re.compile(r"^(\w+)\s+\d+\s+(\d{1,4})\s+([0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){7})\s")
ACTIVE_MTU = re.compile(r"^\s*active_mtu:\s*(\d{3,5})\b")
GPU_LISTED = re.compile(r"^GPU (\d+): .*\(UUID")
NVLINK = re.compile(r"^\s*Link (\d{1,2}): (?:(<?inactive>?)|[\d.]+ GB/s)\s*$", re.IGNORECASE)


def read(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield slots, ports, counters and GPUs."""
    yield from _slots(file, lines)
    yield from _ports(file, lines)
    yield from _queried(file, lines)
    device = ""
    for line in lines:
        if found := QUEUED.match(line.text):
            device = found[1] or ""
        if found := DROPPED.search(line.text):
            key = "lost" if int(found[1]) else "none lost"
            yield Counter(line.place(file), key, float(found[1]), f"dropped by the queue of {device or 'an interface'}")
    for line in lines:
        if "NCCL INFO" not in line.text:
            yield from _states(file, line)


def _slots(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield the slot of each device that lspci describes, with what it could do."""
    bus, name, can = "", "", (0, 0)
    for line in lines:
        if found := DEVICE.match(line.text):
            bus, name, can = found[1], found[2], (0, 0)
        elif found := ABILITY.search(line.text):
            can = GT.get(found[1], 0), int(found[2])
        elif found := STATE.search(line.text):
            yield PcieSlot(line.place(file), bus, _kind(name), GT.get(found[1], 0), int(found[2]), *can, name[:80])
        elif found := ACS.search(line.text):
            yield Complaint(line.place(file), "acs" if found[1] == "+" else "acs is off")


def _kind(name: str) -> str:
    words = name.lower()
    if "nvidia" in words or "[amd/ati]" in words or "instinct" in words:
        return "gpu"
    return "nic" if "mellanox" in words or "infiniband" in words or "ethernet" in words else "bridge"


def _ports(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield the ports of ibstat, ibstatus and ethtool."""
    name, rate, up, layer, last = "", 0.0, False, "", None
    for line in lines:
        if found := PORT.match(line.text):
            if name and last is not None:
                yield Port(last.place(file), name, rate, up, layer == "Ethernet")
            name, rate, up, layer, last = found[1] or found[2] or found[3], 0.0, False, "", None
        elif name and (found := RATE.match(line.text)):
            rate, last = float(found[1]), line
        elif name and (found := UP.match(line.text)):
            up = found[1].lower() == "active"
        elif name and (found := LAYER.match(line.text)):
            layer = found[1]
    if name and last is not None:
        yield Port(last.place(file), name, rate, up, layer == "Ethernet")
    name = ""
    for line in lines:
        if found := OF_ETHTOOL.match(line.text):
            name = found[1] or found[2] or name
        elif found := SPEED.match(line.text):
            yield Port(line.place(file), name or "NIC", float(found[1]) / 1e3, True, True)


def _queried(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield name, lanes and power limit of each GPU that ``nvidia-smi -q`` tells of.

    The generation is left out: an idle GPU runs its slot at the first one.
    """
    bus, number, said = "", -1, dict[str, float]()
    for line in lines:
        if found := QUERIED.match(line.text):
            bus, number, said = found[1], number + 1, {}
        elif not bus:
            continue
        elif found := QUERIED_NAME.match(line.text):
            yield GpuSeen(line.place(file), number, found[1])
        elif (found := QUERIED_LINK.match(line.text)) and found[3]:
            said[found[1]] = float(found[2])
            if found[1] == "Current" and "Max" in said:
                lanes, can = int(said["Current"]), int(said["Max"])
                yield PcieSlot(line.place(file), bus, "gpu", 0, lanes, lanes_can=can)
        elif found := POWER_LIMIT.match(line.text):
            said[found[1]] = float(found[2])
            limit = said.get("Current Power", said.get("Power", 0.0))
            if found[1] == "Default Power" and 0 < limit < said["Default Power"]:
                text = f"its power limit is {limit:g} W of {said['Default Power']:g}"
                yield Counter(line.place(file), "throttled", 1.0, text)


def _states(file: str, line: LogLine) -> Iterator[Fact]:
    if found := LISTED.match(line.text):
        yield GpuSeen(line.place(file), int(found[1] or found[3]), (found[2] or found[4]).rstrip("."))
    if found := ECC_CELL.match(line.text):
        yield Counter(line.place(file), "ecc", float(found[1]))
    if (
        BOOTED.search(line.text)
        and re.search(r"(?:intel|amd)_iommu=on(?!\S*pt)", line.text)
        and "iommu=pt" not in line.text
    ):
        yield Complaint(line.place(file), "iommu")
    if found := THROTTLED.search(line.text):
        yield Counter(line.place(file), "throttled", 1.0, found[1])
    if found := COUNTED.search(line.text):
        yield Counter(line.place(file), "lost" if int(found[2]) else "none lost", float(found[2]), found[1])
    if found := ECC.search(line.text):
        yield Counter(line.place(file), "ecc", float(found[1]))
    if P2P_STATUS.match(line.text):
        is_refused = re.search(r"\b(?:CNS|GNS|TNS|NS)\b", line.text) is not None
        yield Complaint(line.place(file), "p2p-refused" if is_refused else "p2p is granted")


def read_addresses(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield what a NIC or GPU says of its addresses and links."""
    nic, gpu = "", -1
    for line in lines:
        if found := NIC_NAME.match(line.text):
            nic = found[1]
        elif nic and (found := GID.match(line.text)):
            yield Gid(line.place(file), nic, int(found[1]), found[2].lower())
        elif found := GID_SHOWN.match(line.text):
            yield Gid(line.place(file), found[1], int(found[2]), found[3].lower())
        elif nic and (found := ACTIVE_MTU.match(line.text)):
            yield ActiveMtu(line.place(file), nic, int(found[1]))
        elif found := GPU_LISTED.match(line.text):
            gpu = int(found[1])
        elif gpu >= 0 and (found := NVLINK.match(line.text)):
            yield LinkState(line.place(file), gpu, int(found[1]), found[2] is None)


HEAD = re.compile(r"^\s*(?:GPU0)(?:\s+\S+)*")
NAME = re.compile(r"GPU\d{1,4}|NIC\d{1,4}|mlx\S*|bnxt\S*|rdma\S*|irdma\S*|efa\S*|ib\d+|rocep\S*|ibp\S*")
CELL = re.compile(r"X|NV\d{1,2}|PIX|PXB|PXN|PHB|NODE|SYS|SOC|XGMI|PCIE|C2C")
P2P_TABLE = re.compile(r"^\s*GPU\d.*\s(?:OK|CNS|GNS|TNS|NS|U)(?:\s|$)")
OLD = {"SOC": "SYS"}
TITLE = re.compile(r"^\s*((?:Uni|Bi)directional P2P=(?:Enabled|Disabled).*Bandwidth.*Matrix \(GB/s\))")
ROW = re.compile(r"^\s*(\d{1,3})((?:\s+\d{1,6}(?:\.\d+)?)+)\s*$")
REFUSED = re.compile(r"Device=\d+ CANNOT Access Peer Device=\d+")


def read_paths(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield each matrix. Raise InputError that names the line where one is not whole."""
    for at, line in enumerate(lines):
        words = line.text.split()
        is_head = words[:1] == ["GPU0"] and (len(words) == 1 or not CELL.fullmatch(words[1]))
        if is_head and not any(P2P_TABLE.match(row.text) for row in lines[at + 1 : at + 3]):  # topo -p2p: in devices
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
