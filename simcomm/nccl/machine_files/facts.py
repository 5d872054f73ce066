"""Facts: what a file says of a machine, each with its file and line."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from simcomm.nccl.measured.nccl_tests_rows import NcclTestsRun
from simcomm.nccl.pasted import FilePlace


@dataclass(frozen=True)
class Fact:
    """What all facts have."""

    place: FilePlace


@dataclass(frozen=True)
class VariableSet(Fact):
    """A variable of NCCL's that the environment set."""

    name: str
    value: str


@dataclass(frozen=True)
class LibraryVersion(Fact):
    """The version of NCCL or RCCL."""

    version: tuple[int, int]


@dataclass(frozen=True)
class LoggedHop(Fact):
    """How a channel goes from a rank to another: ``transport`` P2P, SHM or NET, with ``detail`` as the log has it."""

    transport: str
    detail: str
    host: str
    is_gdr: bool


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


@dataclass(frozen=True)
class Adapter(Fact):
    """A NIC or interface that NCCL lists: ``kind`` IB, RoCE, Socket or EFA."""

    name: str
    kind: str
    gbit: float = 0.0  # 0: not said


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
class Processor(Fact):
    """Whose the host's processors are: amd, intel or arm."""

    vendor: str


@dataclass(frozen=True)
class NvLinks(Fact):
    """NVLinks of a GPU: whether they lead to switches."""

    to_switch: bool


@dataclass(frozen=True)
class GpuSeen(Fact):
    """A GPU as its driver names it."""

    index: int
    name: str


@dataclass(frozen=True)
class MeasuredRun(Fact):
    """A run of nccl-tests or rccl-tests, also one that printed its devices and no row."""

    run: NcclTestsRun


Row = TypeVar("Row", bound=Fact)


@dataclass
class Facts:
    """All facts of the files, by their kind."""

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
