"""Lines of ``lspci -vv``, ``ibstat``, ``ibstatus``, ``ethtool``, ``nvidia-smi`` and the kernel's command line."""

import re
from collections.abc import Iterator

from simcomm.diagnosis.evidence.facts import Complaint, Counter, Fact, GpuSeen, PcieSlot, Port
from simcomm.diagnosis.readers.lines import LogLine
from simcomm.diagnosis.readers.topology_xml import GT

DEVICE = re.compile(r"^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*)$")
ABILITY = re.compile(r"LnkCap:.*Speed ([\d.]+)GT/s.*Width x(\d+)")
STATE = re.compile(r"LnkSta:\s*Speed ([\d.]+)GT/s(?: \(\w+\))?, Width x(\d+)")
ACS = re.compile(r"ACSCtl:\s*SrcValid\+.*?(?:ReqRedir([+-]))?")
PORT = re.compile(r"^\s*(?:CA '([^']+)'|InfiniBand device '([^']+)' port \d+ status:|hca_id:\s*(\S+))", re.IGNORECASE)
RATE = re.compile(r"^\s*[Rr]ate:\s*(\d+(?:\.\d+)?)(?:\s|$)")
UP = re.compile(r"^\s*[Ss]tate:\s*(?:\d: )?(\w+)")
LAYER = re.compile(r"^\s*(?:[Ll]ink[ _]layer):\s*(\w+)")
SPEED = re.compile(r"^\s*Speed: (\d+)Mb/s")
OF_ETHTOOL = re.compile(r"^Settings for (\S+):|^NIC statistics(?: for (\S+))?")
LISTED = re.compile(r"^GPU (\d+): (.+?) \(UUID")
BOOTED = re.compile(r"BOOT_IMAGE=|intel_iommu=on|amd_iommu=on")
THROTTLED = re.compile(
    r"(HW Slowdown|HW Thermal Slowdown|HW Power Brake Slowdown|SW Thermal Slowdown|SW Power Cap)\s*:\s*Active\b"
)
COUNTED = re.compile(
    r"(rx_discards_phy|tx_discards_phy|out_of_sequence|packet_seq_err|local_ack_timeout_err|rnr_nak_retry_err|"
    r"np_cnp_sent|rx_prio\d_discards?|symbol_error\w*|link_downed\w*|roce_adp_retrans|rx_out_of_buffer|SymbolErrors|"
    r"LinkDowned|PortRcvErrors)\s*[:=.]+\s*(\d{1,18})\b"
)
QUEUED = re.compile(r"^qdisc \S+ \S+ (?:dev (\S+) )?")
DROPPED = re.compile(r"\(dropped (\d{1,18}),")
ECC = re.compile(r"(?:Volatile )?(?:DRAM|SRAM|Double Bit|Aggregate)?\s*Uncorrectable\s*:\s*([1-9]\d{0,8})\b")
P2P_REFUSED = re.compile(r"^\s*GPU\d+(?:\s+(?:X|OK|CNS|GNS|TNS|NS|U))+\s*$")


def read(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield slots, ports, counters and GPUs."""
    yield from _slots(file, lines)
    yield from _ports(file, lines)
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
        elif ACS.search(line.text):
            yield Complaint(line.place(file), "acs")


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


def _states(file: str, line: LogLine) -> Iterator[Fact]:
    if found := LISTED.match(line.text):
        yield GpuSeen(line.place(file), int(found[1]), found[2])
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
    if P2P_REFUSED.match(line.text) and re.search(r"\b(?:CNS|GNS|TNS|NS)\b", line.text):
        yield Complaint(line.place(file), "p2p-refused")
