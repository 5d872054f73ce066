"""Options of a run on virtual ranks, as data that is passed between processes."""

from dataclasses import dataclass, field
from typing import Literal

from collectives.checks import check_whole_number
from collectives.errors import InputError
from simcomm.cluster.cluster import Cluster
from virtual.process.programs import UserProgram

COMPUTE = ("zero", "model", "measured")  # or a GPU of the hardware catalogue
TIMING = ("auto", "live", "recorded")
BACKENDS = ("gloo", "nccl")
LAUNCHERS = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
)
MOST_LIVE = 16  # ranks that ``auto`` times while they run
LIVE_MODELS = ("network", "emulated", "nccl")  # of time; hops of this machine are for the replay
MOST_RANKS = 4096
LAUNCH_S = 25e-6  # of a host, to launch an operator: benchmarks/virtual_launches.py says of what it is the median


@dataclass(frozen=True)
class VirtualOptions:
    """The program, the number of ranks, the cluster, and how times are found.

    ``ranks`` 0: the program starts ranks itself. ``per_node``: ranks per machine; default: all. ``acts_as``: the
    backend whose rules apply, in place of the requested one. ``own``: packages of which each rank has its own modules.
    ``fake``: tensors have no data; then ``only`` lists the ranks that run, and every other rank copies the nearest
    lower one. ``launch_s``: host time to launch a GPU operator, in seconds; 0: the host is never the bottleneck.
    """

    program: UserProgram
    ranks: int
    cluster: Cluster
    per_node: int | None = None
    compute: str = "zero"
    compute_scale: float = 1.0  # of what is measured
    timing: Literal["auto", "live", "recorded"] = "auto"
    acts_as: str | None = None
    gpu: bool = False
    own: frozenset[str] = frozenset()
    strict: bool = False
    algorithms: dict[str, str] = field(default_factory=dict)  # by collective
    fake: bool = False
    only: tuple[int, ...] = ()
    launch_s: float = LAUNCH_S

    def __post_init__(self) -> None:
        check_whole_number("ranks", self.ranks, at_least=0)
        if self.program.is_module and self.program.name in LAUNCHERS:
            raise InputError(
                f"-m {self.program.name} starts processes, which virtual ranks are not; run the script that it starts: "
                "ringlab virtual --ranks N SCRIPT ARGS"
            )
        if self.ranks > MOST_RANKS:
            raise InputError(f"{self.ranks} virtual ranks are too many for one process; at most {MOST_RANKS}")
        if self.ranks > self.cluster.world_size:
            raise InputError(f"{self.ranks} ranks do not fit: {self.cluster.title} has {self.cluster.world_size}")
        if self.timing not in TIMING:
            raise InputError(f"timing is {self.timing!r}; there are {', '.join(TIMING)}")
        if self.timing == "live" and self.cluster.performance_model not in LIVE_MODELS:
            raise InputError(f"{self.cluster.title} has measured hops, by which recorded runs alone are timed")
        self._check_fake()
        if self.acts_as not in (None, *BACKENDS):
            raise InputError(f"the backend is {self.acts_as!r}; there are {' and '.join(BACKENDS)}")

    def _check_fake(self) -> None:
        if self.fake and self.compute == "measured":
            raise InputError("compute is measured, and without data nothing is computed; give model or a GPU")
        if not self.only:
            return
        if not self.fake or not self.ranks:
            raise InputError("only some ranks can run without data, with a number of all ranks: give fake and ranks")
        if self.timing == "live":
            raise InputError("where only some ranks run, times are of a replay: leave timing out")
        if self.only[0] != 0 or list(self.only) != sorted({*self.only}) or self.only[-1] >= self.ranks:
            raise InputError(f"only is {list(self.only)}; give rising ranks from 0 to at most {self.ranks - 1}")

    @property
    def is_live(self) -> bool:
        """Whether times are simulated while the program runs."""
        if self.only:
            return False
        if self.timing == "auto":
            return self.ranks <= MOST_LIVE and self.cluster.performance_model in LIVE_MODELS
        return self.timing == "live"

    @property
    def local_ranks(self) -> int:
        """The number of ranks on a machine."""
        return self.per_node or self.ranks or self.cluster.world_size
