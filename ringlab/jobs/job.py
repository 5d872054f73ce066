"""A job: the ranks of a scenario on the nodes of somebody's cluster, and how torchrun starts them there."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collectives.checks import check_whole_number
from collectives.errors import InputError
from collectives.quoting import quote
from ringlab.jobs.options import RESTARTS
from scenarios import Scenario

WAIT_S = 900  # how long a node waits for the others, which may have to fetch an image of many gigabytes
MOST_PORT = 65535

# Without it torchrun's ranks meet in the store of the agents, which keeps what they said before a restart: a rank may
# connect to where another one was. https://github.com/pytorch/pytorch/issues/135712
FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"

# What srun and the Job run on each node: $0 is Python and "$@" the rest. Only the first node has the store by which
# the nodes find each other; torchrun's own guess goes by the host's name, which a cluster may spell in several ways.
START = 'exec "$0" -m torch.distributed.run --rdzv-conf "is_host=$(({index} == 0)),join_timeout={wait},read_timeout={wait}" "$@"'  # fmt: skip  # noqa: E501


@dataclass(frozen=True)
class Job:
    """A scenario's ranks on the nodes of a cluster, with what ``ringlab run`` is to be given there."""

    scenario: str  # the name of a shipped one, or a file's path on the nodes
    title: str
    nodes: int
    ranks_per_node: int  # with nccl each has a GPU
    backend: str = "nccl"
    overrides: tuple[str, ...] = ()
    log_dir: str | None = None
    resumes: bool = False  # whether it goes on from its last checkpoint when it is started again
    max_restarts: int = RESTARTS

    @property
    def gpus_per_node(self) -> int:
        """GPUs that a node is to have."""
        return self.ranks_per_node if self.backend == "nccl" else 0

    @property
    def size(self) -> str:
        """The job's size in words.

        >>> Job("star8", "Eight", nodes=8, ranks_per_node=1).size
        '8 ranks on 8 nodes, 1 GPU each'
        """
        nodes = f"{self.nodes} node{'s' * (self.nodes > 1)}"
        gpus = f"{self.gpus_per_node} GPU{'s' * (self.gpus_per_node > 1)}" if self.gpus_per_node else "no GPU"
        return f"{self.nodes * self.ranks_per_node} ranks on {nodes}, {gpus}{' each' * (self.nodes > 1)}"

    def torchrun_options(self) -> list[str]:
        """Return what follows ``python -m torch.distributed.run``, but for what each cluster says of its nodes."""
        nodes = ["--nnodes", str(self.nodes), "--nproc-per-node", str(self.ranks_per_node)]
        return [*nodes, "--max-restarts", str(self.max_restarts), "--rdzv-backend", "c10d"]

    def command(self) -> list[str]:
        """Return what each rank is, after the options of torchrun.

        >>> Job("star8", "Eight", nodes=8, ranks_per_node=1, resumes=True).command()[:5]
        ['-m', 'ringlab', 'run', '--backend', 'nccl']
        """
        found = ["-m", "ringlab", "run", "--backend", self.backend]
        found += [word for override in self.overrides for word in ("--set", override)]
        found += ["--log-dir", self.log_dir] if self.log_dir else []
        found += ["--resume", "auto"] if self.resumes else []
        return [*found, f"./{self.scenario}" if self.scenario.startswith("-") else self.scenario]


def make_job(
    scenario: Scenario,
    reference: str,
    overrides: Sequence[str] = (),
    *,
    nodes: int | None = None,
    ranks_per_node: int | None = None,
    backend: str = "nccl",
    log_dir: str | None = None,
    max_restarts: int = RESTARTS,
) -> Job:
    """Return the job of a scenario, which ``reference`` and ``overrides`` name; its nodes are the scenario's hosts.

    Raise InputError for numbers of nodes and of ranks on each that do not make up the scenario's ranks, and for a
    backend that is not known.
    """
    if backend not in ("gloo", "nccl"):
        raise InputError(f"backend {quote(backend)} is not known; there are gloo (CPUs) and nccl (GPUs)")
    check_whole_number("max_restarts", max_restarts, at_least=0)
    nodes, ranks_per_node = _lay_out(scenario, nodes, ranks_per_node)
    resumes = any(getattr(training, "checkpoints", None) for training in scenario.trainings)
    return Job(
        scenario=reference,
        title=scenario.title,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        backend=backend,
        overrides=tuple(overrides),
        log_dir=log_dir,
        resumes=resumes,
        max_restarts=max_restarts,
    )


def checkpoints_override(folder: str) -> str:
    """Return what ``--set`` takes for a checkpoint folder, whatever characters its name has.

    >>> checkpoints_override("my folder")
    'training.checkpoints="my folder"'
    """
    return f"training.checkpoints={json.dumps(folder, ensure_ascii=False)}"


def _lay_out(scenario: Scenario, nodes: int | None, ranks_per_node: int | None) -> tuple[int, int]:
    """Return nodes and ranks on each, which the scenario's cluster says where nobody does. Raise InputError."""
    cluster = scenario.cluster
    for name, value in (("nodes", nodes), ("ranks per node", ranks_per_node)):
        if value is not None:
            check_whole_number(name, value, at_least=1)
    if nodes is None and ranks_per_node is None:
        on_each = {*Counter(cluster.machines()).values()}
        if len(on_each) > 1:
            raise InputError(f"{cluster.title} has unequal numbers of ranks on its hosts; give --gpus-per-node")
        (ranks_per_node,) = on_each
    if ranks_per_node is None:
        ranks_per_node = max(1, cluster.world_size // (nodes or 1))
    nodes = nodes or max(1, cluster.world_size // ranks_per_node)
    if nodes * ranks_per_node != cluster.world_size:
        raise InputError(
            f"{cluster.title} has {cluster.world_size} ranks, and {nodes} nodes with {ranks_per_node} each have "
            f"{nodes * ranks_per_node}; change --nodes, --gpus-per-node or the scenario"
        )
    return nodes, ranks_per_node


def check_port(port: int) -> int:
    """Return a port that an ordinary user may listen on. Raise InputError for another.

    >>> check_port(29500)
    29500
    """
    if not 1024 <= check_whole_number("port", port) <= MOST_PORT:
        raise InputError(f"port is {port}; give one from 1024 to {MOST_PORT}")
    return port


def parse_time_limit(text: str) -> int:
    """Return the seconds of a time limit as Slurm writes it: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS.

    Raise InputError for another text.

    >>> parse_time_limit("90"), parse_time_limit("2:00:00"), parse_time_limit("1-12")
    (5400, 7200, 129600)
    """
    match = re.fullmatch(r"(?:(\d{1,4})-)?(\d{1,6})(?::(\d{1,4}))?(?::(\d{1,4}))?", text, re.ASCII)
    seconds = 0
    if match:
        days, *given = match.groups()
        numbers = [int(one) for one in given if one is not None]
        units = (3600, 60, 1) if days is not None or len(numbers) == 3 else (60, 1)
        seconds = int(days or 0) * 86400 + sum(a * b for a, b in zip(numbers, units, strict=False))
    if not seconds:
        raise InputError(
            f"time limit {quote(text)}: write minutes, hours as 24:00:00 or days as 2-00:00:00, more than 0"
        )
    return seconds


def on_the_nodes(job: Job, scenario: Path | str) -> Job:
    """Return the job with the scenario where it lies on the nodes.

    >>> on_the_nodes(Job("a.toml", "A", nodes=1, ranks_per_node=1), "/scenario/a.toml").command()[-1]
    '/scenario/a.toml'
    """
    return replace(job, scenario=str(scenario))
