"""The options of a run on virtual ranks, which can be pickled and sent to another process."""

from dataclasses import dataclass, field
from typing import Literal

from collectives.checks import check_whole_number
from collectives.errors import InputError
from simcomm.cluster.cluster import Cluster
from virtual.process.programs import UserProgram

COMPUTE = ("zero", "model", "measured")  # or the name of a GPU in the hardware catalogue
TIMING = ("auto", "live", "recorded")
BACKENDS = ("gloo", "nccl")
LAUNCHERS = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
)
MOST_LIVE = 16  # ranks: with more, timing "auto" does not simulate live
LIVE_MODELS = ("network", "emulated", "nccl")  # performance models that support live timing
MOST_RANKS = 4096
LAUNCH_S = 25e-6  # host time to launch an operator: the median of benchmarks/virtual_launches.py


@dataclass(frozen=True)
class VirtualOptions:
    """The options of a run: the program, the ranks, the cluster, and how compute and communication are timed.

    ``ranks`` is 0 if the program starts its ranks itself. ``per_node`` is the number of ranks per machine. By default,
    all ranks are on one machine. ``acts_as`` is the backend to imitate. By default, it is the backend that the program
    requests. Each rank imports its own copy of the packages in ``own``. ``launch_s`` is the host time in seconds to
    launch a GPU operator.

    If ``fake`` is True, tensors have no data. ``only`` may then list the ranks to run, and every other rank copies the
    nearest lower one.
    """

    program: UserProgram
    ranks: int
    cluster: Cluster
    per_node: int | None = None
    compute: str = "zero"
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
                f"-m {self.program.name}: a launcher cannot run on virtual ranks; run the script that it starts: "
                "ringlab virtual --ranks N SCRIPT ARGS"
            )
        if self.ranks > MOST_RANKS:
            raise InputError(f"ranks must be at most {MOST_RANKS}, not {self.ranks}")
        if self.ranks > self.cluster.world_size:
            raise InputError(
                f"ranks must be at most {self.cluster.world_size} on {self.cluster.title}, not {self.ranks}"
            )
        if self.timing not in TIMING:
            raise InputError(f"timing must be {', '.join(TIMING[:-1])} or {TIMING[-1]}, not {self.timing!r}")
        if self.timing == "live" and self.cluster.performance_model not in LIVE_MODELS:
            raise InputError(f"timing must be 'auto' or 'recorded' on {self.cluster.title}, not 'live'")
        self._check_fake()
        if self.acts_as not in (None, *BACKENDS):
            raise InputError(f"acts_as must be {' or '.join(BACKENDS)}, not {self.acts_as!r}")

    def _check_fake(self) -> None:
        if self.fake and self.compute == "measured":
            raise InputError("compute must be 'zero', 'model' or a GPU if `fake` is set, not 'measured'")
        if not self.only:
            return
        if not self.fake or not self.ranks:
            raise InputError("`only` requires `fake`, and `ranks` of at least 1")
        if self.timing == "live":
            raise InputError("timing must be 'auto' or 'recorded' if `only` is set, not 'live'")
        if self.only[0] != 0 or list(self.only) != sorted({*self.only}) or self.only[-1] >= self.ranks:
            raise InputError(
                f"`only` must be ascending ranks from 0 to {self.ranks - 1}, including 0, not {list(self.only)}"
            )

    @property
    def is_live(self) -> bool:
        """Whether communication times are simulated while the program runs, rather than by a later replay."""
        if self.only:
            return False
        if self.timing == "auto":
            return self.ranks <= MOST_LIVE and self.cluster.performance_model in LIVE_MODELS
        return self.timing == "live"

    @property
    def local_ranks(self) -> int:
        return self.per_node or self.ranks or self.cluster.world_size
