"""Facts: what a file says, each with the file and line that says it; plain rows that rules are written about."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from collectives.quoting import MOST_QUOTED, make_printable
from collectives.records.kineto import Profile
from collectives.records.trace import Trace
from simcomm.nccl.measured.nccl_tests_rows import Device, NcclTestsRun


class FilePlace(NamedTuple):
    """Where a fact is said: file, line counted from 1 (0: the file as a whole), and the line itself, shortened."""

    file: str
    line: int
    text: str

    @classmethod
    def of(cls, file: str, line: int, text: str) -> "FilePlace":
        """Return a place with as much of the line as is quoted."""
        return cls(file, line, make_printable(" ".join(text.split()), most=MOST_QUOTED))


@dataclass(frozen=True)
class Fact:
    """What all facts have."""

    place: FilePlace


@dataclass(frozen=True)
class VariableSet(Fact):
    """A variable of NCCL's that the environment set."""

    name: str
    value: str
    host: str = ""


@dataclass(frozen=True)
class LibraryVersion(Fact):
    """The version of NCCL or RCCL."""

    version: tuple[int, int]


@dataclass(frozen=True)
class LoggedHop(Fact):
    """How a channel goes from one rank to another: ``transport`` P2P, SHM or NET, with ``detail`` as the log has it."""

    source: int
    target: int
    end: str  # send, receive, or "" inside a host
    transport: str
    detail: str
    host: str
    is_gdr: bool = False
    nic: int | None = None


@dataclass(frozen=True)
class CommRank(Fact):
    """A rank of a communicator, where it is said how many there are."""

    rank: int
    ranks: int
    host: str
    nodes: int = 0  # 0: not said


@dataclass(frozen=True)
class NetworkUsed(Fact):
    """The network that NCCL chose: IB, Socket, AWS Libfabric, or a plug-in's name."""

    name: str
    host: str


@dataclass(frozen=True)
class Adapter(Fact):
    """A NIC or interface that NCCL lists: ``kind`` IB, RoCE, Socket or EFA."""

    name: str
    kind: str
    host: str
    gbit: float = 0.0  # 0: not said


@dataclass(frozen=True)
class ChannelCount(Fact):
    """How many channels a communicator opened, and how many of NVLS."""

    channels: int
    nvls: int = 0


@dataclass(frozen=True)
class Complaint(Fact):
    """A warning or message of NCCL, torch or a driver that stands for something known, by ``key``."""

    key: str
    host: str = ""


@dataclass(frozen=True)
class Unexplained(Fact):
    """A warning or exception of which is not known what it stands for, with the program's own line that raised it."""

    frame: str


@dataclass(frozen=True)
class Milestone(Fact):
    """How far a rank's start came: connected or complete."""

    name: str
    host: str


@dataclass(frozen=True)
class PcieSlot(Fact):
    """A device on PCIe: generation and lanes as they are and as the device could; 0 where that is not said."""

    bus: str
    kind: str  # gpu, nic or bridge
    generation: int
    lanes: int
    generation_can: int = 0
    lanes_can: int = 0
    name: str = ""


@dataclass(frozen=True)
class Port(Fact):
    """A port of a NIC: Gbit/s, whether it is up, and whether its layer is Ethernet."""

    name: str
    gbit: float
    is_up: bool
    is_ethernet: bool


@dataclass(frozen=True)
class Gid(Fact):
    """An address of a NIC in its table, by index."""

    nic: str
    index: int
    address: str


@dataclass(frozen=True)
class ActiveMtu(Fact):
    """The most bytes that a NIC sends at once."""

    nic: str
    nbytes: int


@dataclass(frozen=True)
class LinkState(Fact):
    """One NVLink of a GPU: whether it is up."""

    gpu: int
    link: int
    is_active: bool


@dataclass(frozen=True)
class PathMatrix(Fact):
    """What joins GPUs and NICs of a host, as ``nvidia-smi topo -m`` says it: NV18, PIX, PXB, PHB, NODE or SYS."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]

    def between(self, one: str, other: str) -> str:
        """Return the path between two devices; "" where the matrix has none."""
        return self.cells.get((one, other)) or self.cells.get((other, one), "")

    def among_gpus(self) -> list[str]:
        """Return the path of each pair of GPUs."""
        return [self.between(a, b) for at, a in enumerate(self.gpus) for b in self.gpus[:at]]


@dataclass(frozen=True)
class PairRates(Fact):
    """GB/s measured between each two devices, as a matrix."""

    title: str
    rates: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Processor(Fact):
    """Whose the host's processors are: amd, intel or arm."""

    vendor: str


@dataclass(frozen=True)
class NvLinks(Fact):
    """NVLinks of a GPU: how many, and whether they lead to switches."""

    bus: str
    count: int
    to_switch: bool


@dataclass(frozen=True)
class SearchedGraph(Fact):
    """What NCCL's search found: channels and GB/s of a channel, inside a node and between nodes."""

    pattern: int
    channels: int
    inside: float
    between: float


@dataclass(frozen=True)
class TunerChoice(Fact):
    """What NCCL's tuner took for a collective of a size, in the model's words."""

    collective: str
    nbytes: int
    algorithm: str
    protocol: str


@dataclass(frozen=True)
class GpuSeen(Fact):
    """A GPU as its driver names it."""

    index: int
    name: str


@dataclass(frozen=True)
class Counter(Fact):
    """A counter or state of a device: ``key`` says what it stands for."""

    key: str
    value: float
    device: str = ""


@dataclass(frozen=True)
class TestTable(Fact):
    """A run of nccl-tests or rccl-tests: its rows with their lines, and its devices."""

    run: NcclTestsRun
    devices: tuple[Device, ...]
    lines: tuple[int, ...]
    is_ended: bool  # whether its last line is there

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts in the order of ranks."""
        return tuple(dict.fromkeys(device.host for device in self.devices))


@dataclass(frozen=True)
class StartedTest(Fact):
    """A run of nccl-tests that printed its devices and no row."""

    devices: tuple[Device, ...]


@dataclass(frozen=True)
class RankTimeout(Fact):
    """A collective that torch's watchdog gave up: what it was, and how far the rank had come."""

    rank: int
    sequence: int
    operation: str
    elements: int | None = None
    group: str = ""
    enqueued: int | None = None
    completed: int | None = None


@dataclass(frozen=True)
class RankEnded(Fact):
    """The rank whose process ended first, as torchrun says: its host, and its exit status, negative of a signal."""

    rank: int
    host: str
    status: int


@dataclass(frozen=True)
class Fingerprint:
    """A collective as torch's wrapper knows it: ranks that are in it, number, kind and shape."""

    rank: int
    sequence: int
    operation: str
    shape: str


@dataclass(frozen=True)
class CollectiveMismatch(Fact):
    """Two ranks that are in different collectives."""

    one: Fingerprint
    other: Fingerprint


@dataclass(frozen=True)
class StackTop(Fact):
    """Where a process stands: its frames from the innermost one, as ``function (file:line)``."""

    process: str
    frames: tuple[str, ...]


@dataclass(frozen=True)
class FlightCall(Fact):
    """A collective, send or receive in a rank's flight recorder."""

    rank: int
    group: str
    sequence: int
    operation: str
    state: str  # scheduled, started or completed
    frame: str = ""
    is_p2p: bool = False


@dataclass(frozen=True)
class FlightGroup(Fact):
    """A process group in the flight recorder of one of its ranks."""

    rank: int
    group: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class Progressing(Fact):
    """A line of a progress bar: what is worked on, and how far it is."""

    what: str
    share: float


@dataclass(frozen=True)
class RunTrace(Fact):
    """A Trace: of Ringlab's own runs, or the phases in torch's profiles of one or all ranks."""

    trace: Trace


@dataclass(frozen=True)
class ProfiledRanks(Fact):
    """What torch's profiles of one run say, a profile a rank."""

    profiles: tuple[Profile, ...]


@dataclass(frozen=True)
class ProfiledCall(Fact):
    """A collective in torch's profile: bytes and seconds, 0 bytes where the profile does not say them."""

    rank: int
    name: str
    nbytes: int
    ranks: int
    begin: float
    end: float
    exposed: float  # seconds of it during which no other kernel ran
    group: str = ""
    members: tuple[int, ...] = ()  # of its group; none: all ranks, or not said


@dataclass(frozen=True)
class KernelShare(Fact):
    """The share of the GPU's time that a kernel or operator takes by itself, as torch's profiler prints it."""

    name: str
    share: float


@dataclass(frozen=True)
class BenchedRow(Fact):
    """A collective that ``ringlab bench`` measured beside its prediction, in seconds."""

    algorithm: str
    measured: float
    predicted: float


@dataclass(frozen=True)
class StepTime(Fact):
    """Seconds of a part of a training step, as a log says it, of all steps that it tells of."""

    part: str  # data or step
    seconds: float


Row = TypeVar("Row", bound=Fact)


@dataclass
class Facts:
    """All facts of the files, by their kind."""

    files: list[tuple[str, str]] = field(default_factory=list)  # file, and what it was found to be
    _rows: dict[type[Fact], list[Any]] = field(default_factory=lambda: defaultdict(list))

    def add(self, row: Fact) -> None:
        """Take a fact."""
        self._rows[type(row)].append(row)

    def of(self, kind: type[Row]) -> list[Row]:
        """Return the facts of a kind, in the order of the files."""
        return list(self._rows.get(kind, ()))

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def settings(self) -> dict[str, VariableSet]:
        """Return the variables that were set; of one set twice the first."""
        found: dict[str, VariableSet] = {}
        for one in self.of(VariableSet):
            found.setdefault(one.name, one)
        return found

    def complaint(self, *keys: str) -> Complaint | None:
        """Return the first complaint of one of these keys."""
        return next((one for one in self.of(Complaint) if one.key in keys), None)

    def hosts(self) -> tuple[str, ...]:
        """Return the hosts that devices, ranks and hops name."""
        names = [device.host for table in self.of(TestTable) for device in table.devices]
        names += [device.host for started in self.of(StartedTest) for device in started.devices]
        names += [one.host for one in self.of(CommRank)] + [one.host for one in self.of(LoggedHop)]
        return tuple(dict.fromkeys(filter(None, names)))
