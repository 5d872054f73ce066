"""A job: the ranks of a scenario on the nodes of somebody's cluster, and how torchrun starts them there.

What ``ringlab slurm`` and ``ringlab k8s`` share.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from collectives.checks import check_whole_number
from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.quoting import quote
from ringlab.session import load_scenario
from ringlab.shared.output import check_outputs, make_console
from scenarios import LoadedScenario

PORT = 29500
WAIT_S = 900  # how long a node waits for the others, which may have to fetch an image of many gigabytes

# Without it torchrun's ranks meet in the store of the agents, which keeps what they said before a restart: a rank may
# connect to where another one was. https://github.com/pytorch/pytorch/issues/135712
FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"

Text = str | None
OutputOpt = Annotated[
    Path | None, Option("-o", "--output", metavar="FILE", help="Output file. Default: standard output.")
]
TimeLimitOpt = Annotated[
    str, Option("-t", "--time", metavar="TIME", help="Time limit, such as 24:00:00 or 2-00:00:00.")
]


@dataclass(frozen=True)
class JobOptions:
    """The nodes, the ranks on each, and what they keep."""

    set_keys: Annotated[
        list[str], Option("--set", metavar="KEY=VALUE", help="Override a key of the scenario. Repeatable.")
    ] = field(default_factory=list)  # fmt: skip
    nodes: Annotated[
        int | None, Option("-N", "--nodes", min=1, help="Number of nodes. Default: the scenario's number of hosts.")
    ] = None
    per_node: Annotated[
        int | None,
        Option("--gpus-per-node", "--ranks-per-node", min=1, help="Ranks per node. With nccl, each rank uses one GPU."),
    ] = None
    backend: Annotated[
        str, Option(metavar="gloo|nccl", help="Backend of torch.distributed: gloo (CPUs) or nccl (GPUs).")
    ] = "nccl"
    checkpoints: Annotated[
        Text, Option("--checkpoints", metavar="DIR", help="Checkpoint directory; a restarted job resumes from it.")
    ] = None
    log_dir: Annotated[Text, Option("--log-dir", metavar="DIR", help="Directory for metrics and logs.")] = None
    max_restarts: Annotated[
        int, Option("--max-restarts", min=0, help="Maximum number of restarts after a rank fails.")
    ] = 3

    @property
    def overrides(self) -> list[str]:
        """The changes of the scenario, with the checkpoint folder, whatever characters its name has.

        >>> JobOptions(checkpoints="my folder").overrides
        ['training.checkpoints="my folder"']
        """
        kept = json.dumps(self.checkpoints, ensure_ascii=False)
        return [*self.set_keys, *([f"training.checkpoints={kept}"] if self.checkpoints else [])]


@dataclass(frozen=True)
class Job:
    """A scenario's ranks on the nodes of a cluster, with what ``ringlab run`` is to be given there."""

    scenario: str  # the name of a shipped one, or a file's path on the nodes
    title: str
    nodes: int
    ranks_per_node: int  # with nccl each has a GPU
    resumes: bool = False  # whether it goes on from its last checkpoint when it is started again
    options: JobOptions = JobOptions()

    @property
    def gpus_per_node(self) -> int:
        """GPUs that a node is to have."""
        return self.ranks_per_node if self.options.backend == "nccl" else 0

    @property
    def name(self) -> str:
        """A name for the job, which any scheduler takes.

        >>> Job("emulated/My run.toml", "Mine", nodes=1, ranks_per_node=1).name
        'ringlab-my-run'
        """
        words = re.sub(r"[^a-z0-9]+", "-", Path(self.scenario).stem.lower()).strip("-")
        return f"ringlab-{words}"[:52].rstrip("-")

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
        return [*nodes, "--max-restarts", str(self.options.max_restarts), "--rdzv-backend", "c10d"]

    def command(self) -> list[str]:
        """Return what each rank is, after the options of torchrun.

        >>> Job("star8", "Eight", nodes=8, ranks_per_node=1, resumes=True).command()
        ['-m', 'ringlab', 'run', '--backend', 'nccl', '--resume', 'auto', 'star8']
        """
        found = ["-m", "ringlab", "run", "--backend", self.options.backend]
        found += [word for override in self.options.overrides for word in ("--set", override)]
        found += ["--log-dir", self.options.log_dir] if self.options.log_dir else []
        found += ["--resume", "auto"] if self.resumes else []
        return [*found, f"./{self.scenario}" if self.scenario.startswith("-") else self.scenario]


def start_of_node(index: str) -> str:
    """Return what the shell of each node runs; ``index`` is the variable that numbers the nodes.

    $0 is Python and "$@" the rest. Only the first node has the store by which the nodes find each other; torchrun's own
    guess goes by the host's name, which a cluster may spell in several ways.
    """
    store = f"is_host=$(({index} == 0)),join_timeout={WAIT_S},read_timeout={WAIT_S}"
    return f'exec "$0" -m torch.distributed.run --rdzv-conf "{store}" "$@"'


def load_job(scenario: str, options: JobOptions, output: Path | None) -> Job:
    """Return the job that the options describe. Raise InputError, also for an output that cannot be written."""
    loaded = load_scenario(scenario, *options.overrides)
    check_outputs(output)
    return make_job(loaded, scenario, options)


def make_job(scenario: LoadedScenario, reference: str, options: JobOptions | None = None) -> Job:
    """Return the job of a scenario, which ``reference`` names; its nodes are the scenario's hosts, unless said.

    Raise InputError for numbers of nodes and of ranks on each that do not make up the scenario's ranks, and for a
    backend that is not known.
    """
    options = JobOptions() if options is None else options
    if options.backend not in ("gloo", "nccl"):
        raise InputError(f"unknown backend {quote(options.backend)}; use gloo (CPUs) or nccl (GPUs)")
    nodes, ranks_per_node = _lay_out(scenario, options.nodes, options.per_node)
    resumes = any(getattr(training, "checkpoints", None) for training in scenario.trainings)
    return Job(reference, scenario.title, nodes, ranks_per_node, resumes, options)


def _lay_out(scenario: LoadedScenario, nodes: int | None, ranks_per_node: int | None) -> tuple[int, int]:
    """Return nodes and ranks on each, which the scenario's cluster says where nobody does. Raise InputError."""
    cluster = scenario.cluster
    if nodes is None and ranks_per_node is None:
        on_each = {*Counter(cluster.machines()).values()}
        if len(on_each) > 1:
            raise InputError(f"the hosts of {cluster.title} have different numbers of ranks; pass --gpus-per-node")
        (ranks_per_node,) = on_each
    if ranks_per_node is None:
        ranks_per_node = max(1, cluster.world_size // (nodes or 1))
    nodes = nodes or max(1, cluster.world_size // ranks_per_node)
    if nodes * ranks_per_node != cluster.world_size:
        raise InputError(
            f"{cluster.title} has {cluster.world_size} ranks, but {nodes} nodes with {ranks_per_node} "
            f"ranks each have {nodes * ranks_per_node}; change --nodes, --gpus-per-node or the "
            "scenario"
        )
    return nodes, ranks_per_node


def write_job(text: str, output: Path | None, submit: str) -> None:
    """Write a job to a file, or to standard output; say how it is submitted."""
    if output is None:
        typer.echo(text, nl=False)
        return
    write_text(output, text)
    make_console().print(f"The job: {output}; `{submit} {output}` submits it", soft_wrap=True)


def check_port(port: int) -> int:
    """Return a port that an ordinary user may listen on. Raise InputError for another.

    >>> check_port(29500)
    29500
    """
    if not 1024 <= check_whole_number("port", port) <= 65535:
        raise InputError(f"port must be between 1024 and 65535, not {port}")
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
        raise InputError(f"invalid time limit {quote(text)}: write minutes, hours as 24:00:00, or days as 2-00:00:00")
    return seconds
