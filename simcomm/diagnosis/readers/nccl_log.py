"""Lines that NCCL and RCCL write with ``NCCL_DEBUG=INFO``, of versions since 2.4.

The forms are those of src/init.cc, src/transport/*.cc, src/graph/*.cc and src/misc/*.cc of NVIDIA/nccl, and of
aws-ofi-nccl. A line that is cut off within a form that is read here is refused, unless it is the last.
"""

import re
from collections.abc import Callable, Iterator

from collectives.errors import InputError
from simcomm.diagnosis.evidence.facts import (
    Adapter,
    ChannelCount,
    CommRank,
    Complaint,
    Fact,
    FilePlace,
    LibraryVersion,
    LoggedHop,
    Milestone,
    NetworkUsed,
    SearchedGraph,
    TunerChoice,
    VariableSet,
)
from simcomm.diagnosis.readers.lines import LogLine
from simcomm.nccl.settings import ALGORITHMS, PROTOCOLS

OF_NCCL = re.compile(
    r"(?:(?P<host>[^\s:\[\]]+):\d+:\d+ )?(?:\[(?P<device>\d+)\] )?(?:\S+\.(?:cc|cpp|cu|h):\d+ )?"
    r"(?:\S+:\d+ )?NCCL (?:INFO|WARN|TRACE|CALL) ?(?P<said>.*)"
)
VERSION = re.compile(r"\b[NR]CCL version (?:: )?(\d{1,2})\.(\d{1,3})\.\d+")
SET = re.compile(r"(NCCL_[A-Z0-9_]{2,40}|RCCL_[A-Z0-9_]{2,40}) set (?:by environment )?to (\S.*)")
ASSIGNED = re.compile(
    r"(?:^|\s)(?:-x\s+|export\s+|-env\s+|--env\s+|-e\s+)?(NCCL_[A-Z0-9_]{2,40})=(['\"]?)([^\s'\"\\]+)\2"
)
HOP = re.compile(
    r"(?:Channel|Ring) \d+(?:/\d+)? ?: (\d+)(?:\[[^\]]*\])? -> (\d+)(?:\[[^\]]*\])?(?: \[(send|receive)\])?(?: via "
    r"(\S.*))?$"
)
VIA = re.compile(r"(P2P|SHM|NET|COLLNET|NVLS)(?:/(.*))?$")
COMM = re.compile(r"comm 0x[0-9a-f]+ rank (\d+) n[Rr]anks (\d+)(?:.* nNodes (\d+))?")
CHANNELS = re.compile(r"(\d+) coll channels,(?: \d+ collnet channels,)?(?: (\d+) nvls channels,)?")
USING = re.compile(r"Using network (\S.*)")
ADAPTER = re.compile(r"\[\d+\]\s?(\{[^}]*\}|[^\s:;,]+)(?::(\d+))?(?:/(\w+))?")
PATTERN = re.compile(
    r"Pattern (\d+), crossNic \d+, nChannels (\d+), (?:bw|speed) ([\d.]+)/([\d.]+),(?: nvls [\d.]+,)? type (\w+)/(\w+)"
)
OLD_INTERFACE = re.compile(r"NET : Using interface ([^:\s]+):")
CHOSEN = re.compile(r"(?:(\w+): )?(\d{1,18}) Bytes -> Algo (\w+) proto (\w+)", re.IGNORECASE)
FUNCTIONS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "broadcast": "broadcast",
    "reduce": "reduce",
}  # fmt: skip
NET_RATE = re.compile(r"NET\[([\d.]+)\] - NET/(\S+)")

COMPLAINTS = (  # what a message that rules ask for stands for; in small letters
    ("no-ibverbs", r"failed to open libibverbs"),
    ("no-ib-device", r"net/ib : no device found"),
    ("ib-not-opened", r"ibv_open_device failed|net/ib : unable to open device"),
    ("gdr-off", r"gpu direct rdma disabled|gpu direct rdma \S* ?(?:is )?not (?:available|supported)|gdr 0\b"),
    ("no-peermem", r"nv_?peer_?mem(?:ory)? (?:is )?not (?:loaded|found)|dma-buf is (?:not available|disabled)"),
    ("efa-absent", r"only efa provider is supported|net/ofi couldn't find any optimal provider|no eligible providers"),
    ("p2p-refused", r"p2p is disabled between|peer access is not supported|could not enable "
                    r"p2p|cudaipcopenmemhandle failed"),
    ("no-path", r"could not find a path for pattern"),
    ("iommu-advice", r'missing "(?:amd_iommu=on|iommu=pt)"'),
    ("fine-grain", r'missing "hsa_force_fine_grain_pcie=1"'),
    ("numa-balancing", r"numa auto balancing enabled"),
    ("plugin-there", r"loaded (?:external )?(?:net|network) plugin|plugin path : \S*net\S*\.so"),
    ("plugin-absent", r"could not find: libnccl-net|no plugin found \(libnccl-net"),
)  # fmt: skip
KNOWN_COMPLAINTS = tuple((key, re.compile(pattern)) for key, pattern in COMPLAINTS)
ANY_COMPLAINT = re.compile("|".join(pattern for _, pattern in COMPLAINTS))
MILESTONES = ("Connected all rings", "Connected all trees", "Init COMPLETE", "Init START", "Abort COMPLETE")


def read(file: str, lines: list[LogLine]) -> Iterator[Fact]:
    """Yield what NCCL's lines say, and variables of NCCL's that a command line sets."""
    for line in lines:
        if not line.text or line.text.startswith("#"):
            continue
        if "NCCL INFO Channel " in line.text and " -> " not in line.text:
            continue  # the order of a ring, of which a log has most
        place = line.place(file)
        if "CCL version" in line.text and (found := VERSION.search(line.text)):
            yield LibraryVersion(place, (int(found[1]), int(found[2])))
        if "NCCL " in line.text and (of_nccl := OF_NCCL.search(line.text)) is not None:
            host, said = of_nccl["host"] or "", of_nccl["said"]
            try:
                yield from _read_message(place, host, said)
            except InputError:
                if line is not lines[-1] or len(lines) == 1:
                    raise
                return  # the log of a process that was killed ends within a line
            if not said.startswith(("Channel ", "Ring ")):
                yield from _complaints(place, host, line.text)
        else:
            for found in ASSIGNED.finditer(line.text) if "NCCL_" in line.text else ():
                yield VariableSet(place, found[1], found[3])
            yield from _complaints(place, "", line.text)


def _read_message(place: FilePlace, host: str, said: str) -> Iterator[Fact]:
    """Yield what one message of NCCL's says."""
    if said.startswith(("Channel ", "Ring ")) and " -> " in said:
        if (found := HOP.search(said)) is None:
            raise InputError(
                f"{place.file}: line {place.line}: {place.text[:60]!r} is cut off; NCCL writes ... via ..."
            )
        yield _hop(place, host, found)
        return
    if found := SET.search(said):
        yield VariableSet(place, found[1], found[2].strip().rstrip("."), host)
    if found := COMM.search(said):
        yield CommRank(place, int(found[1]), int(found[2]), host, int(found[3] or 0))
    if found := CHANNELS.search(said):
        yield ChannelCount(place, int(found[1]), int(found[2] or 0))
    if found := PATTERN.search(said):
        yield SearchedGraph(place, int(found[1]), int(found[2]), float(found[3]), float(found[4]))
    if found := NET_RATE.search(said):
        yield Adapter(place, found[2], "NET", host, float(found[1]) * 8)
    if found := CHOSEN.search(said):
        algorithm, protocol = _named(found[3], ALGORITHMS), _named(found[4], PROTOCOLS)
        collective = FUNCTIONS.get((found[1] or "allreduce").lower())
        if collective and algorithm and protocol:
            yield TunerChoice(place, collective, int(found[2]), algorithm, protocol)
    for name in MILESTONES:
        if name in said:
            yield Milestone(place, name, host)
    yield from _networks(place, host, said)


def _hop(place: FilePlace, host: str, found: "re.Match[str]") -> LoggedHop:
    via = VIA.match((found[4] or "").strip())
    if via is None:
        if found[4] is None:
            raise InputError(
                f"{place.file}: line {place.line}: {place.text[:60]!r} is cut off; NCCL writes ... via ..."
            )
        return LoggedHop(place, int(found[1]), int(found[2]), found[3] or "", "other", found[4], host)
    parts = (via[2] or "").split("/")
    nic = next((int(part) for part in parts if part.isdecimal()), None)
    is_gdr = any(part.startswith("GDR") for part in parts)
    return LoggedHop(
        place, int(found[1]), int(found[2]), found[3] or "", via[1], parts[0], host, is_gdr=is_gdr, nic=nic
    )


def _named(word: str, names: tuple[str, ...]) -> str | None:
    """Return what NCCL's log means by a number, or by a name without underscores.

    >>> _named("1", ALGORITHMS), _named("NVLSTREE", ALGORITHMS), _named("9", PROTOCOLS)
    ('ring', 'nvls_tree', None)
    """
    if word.isdecimal():
        return names[int(word)] if int(word) < len(names) else None
    return next((name for name in names if name.replace("_", "") == word.lower().replace("_", "")), None)


def _networks(place: FilePlace, host: str, said: str) -> Iterator[Fact]:
    if found := USING.search(said):
        yield NetworkUsed(place, found[1].strip(), host)
    if found := OLD_INTERFACE.search(said):
        yield Adapter(place, found[1], "Socket", host)
    if found := re.search(r"NET/OFI Selected [Pp]rovider is (\S+)", said):
        yield NetworkUsed(place, f"OFI {found[1].rstrip(',')}", host)
    readers: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
        ("NET/IB : Using ", lambda one: one[3] or "IB"),
        ("NET/Socket : Using ", lambda one: "Socket"),
    )
    for start, kind in readers:
        if start in said:
            listed = said.split(start, 1)[1].split(" ; OOB")[0].split("; OOB")[0]
            for found in ADAPTER.finditer(listed):
                yield Adapter(place, found[1], kind(found), host)


def _complaints(place: FilePlace, host: str, text: str) -> Iterator[Fact]:
    small = text.lower()
    if ANY_COMPLAINT.search(small) is None:
        return
    for key, pattern in KNOWN_COMPLAINTS:
        if pattern.search(small):
            yield Complaint(place, key, host)
