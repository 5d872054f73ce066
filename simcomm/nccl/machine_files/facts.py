"""Define facts about a machine. Each fact names the file and the line that state it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from simcomm.nccl.measured.nccl_tests_rows import NcclTestsRun
from simcomm.nccl.pasted import FilePlace


@dataclass(frozen=True)
class Fact:
    place: FilePlace


@dataclass(frozen=True)
class VariableSet(Fact):
    """An NCCL environment variable that is set, with its value."""

    name: str
    value: str


@dataclass(frozen=True)
class LibraryVersion(Fact):
    version: tuple[int, int]


@dataclass(frozen=True)
class LoggedHop(Fact):
    """The path of a channel between two ranks. ``transport`` is P2P, SHM or NET; ``detail`` is the log's text."""

    transport: str
    detail: str
    is_gdr: bool


@dataclass(frozen=True)
class CommRank(Fact):
    """A rank of a communicator, with the communicator's size."""

    rank: int
    ranks: int
    host: str
    nodes: int = 0  # 0: unknown


@dataclass(frozen=True)
class NetworkUsed(Fact):
    """The network that NCCL uses: IB, Socket, AWS Libfabric, or a plug-in's name."""

    name: str


@dataclass(frozen=True)
class Adapter(Fact):
    """A NIC or network interface. From a log, ``kind`` is its type. From a topology file, it is "gdr" or "no gdr"."""

    name: str
    kind: str
    gbit: float = 0.0  # 0: unknown


@dataclass(frozen=True)
class GpuSlot(Fact):
    """The PCIe slot of a GPU, with its generation and lanes. 0 means unknown."""

    bus: str
    generation: int
    lanes: int


@dataclass(frozen=True)
class PathMatrix(Fact):
    """The paths between the GPUs and NICs of a host in ``nvidia-smi topo -m``: NV18, PIX, PXB, PHB, NODE or SYS."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]

    def among_gpus(self) -> list[str]:
        """Return the path of each pair of GPUs, or an empty string for a pair that the matrix lacks."""
        pairs = [(a, b) for at, a in enumerate(self.gpus) for b in self.gpus[:at]]
        return [self.cells.get((a, b)) or self.cells.get((b, a), "") for a, b in pairs]


@dataclass(frozen=True)
class Processor(Fact):
    """The CPUs of the host. Their vendor is amd, intel or arm."""

    vendor: str


@dataclass(frozen=True)
class NvLinks(Fact):
    """The NVLinks of a GPU. ``to_switch`` is whether they lead to an NVSwitch."""

    to_switch: bool


@dataclass(frozen=True)
class GpuSeen(Fact):
    """A GPU with the name that its driver reports."""

    index: int
    name: str


@dataclass(frozen=True)
class MeasuredRun(Fact):
    """A run of nccl-tests or rccl-tests. It has no rows if its output only lists devices."""

    run: NcclTestsRun


Row = TypeVar("Row", bound=Fact)


class Facts(dict[type[Fact], list[Any]]):
    """All facts in a set of files, grouped by the type of fact."""

    def add(self, fact: Fact) -> None:
        self.setdefault(type(fact), []).append(fact)

    def of(self, kind: type[Row]) -> list[Row]:
        """Return the facts of a type, in the order of the files."""
        return self.get(kind, [])

    def settings(self) -> dict[str, str]:
        """Return NCCL's environment variables. If a variable is set several times, its first value is returned."""
        return {row.name: row.value for row in reversed(self.of(VariableSet))}
