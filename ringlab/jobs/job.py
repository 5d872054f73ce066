"""A job: the ranks of a scenario or a script on the nodes of a cluster, and how torchrun starts them there."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Option

from collectives.errors import InputError
from collectives.quoting import quote
from ringlab.session import load_scenario
from ringlab.shared.output import check_outputs
from scenarios import LoadedScenario

Text = str | None


@dataclass(frozen=True)
class JobOptions:
    """The nodes, the ranks on each, and what they keep."""

    set_keys: Annotated[
        list[str], Option("--set", metavar="KEY=VALUE", help="Override a key of the scenario. Repeatable.")
    ] = field(default_factory=list)  # fmt: skip
    nodes: Annotated[
        int | None,
        Option(
            "-N", "--nodes", min=1, help="Number of nodes. Default: the scenario's number of hosts; 1 for a script."
        ),
    ] = None
    per_node: Annotated[
        int | None,
        Option(
            "--gpus-per-node",
            "--gpus",
            "--ranks-per-node",
            min=1,
            help="Ranks per node. With nccl, each rank uses one GPU.",
        ),
    ] = None
    backend: Annotated[
        str, Option(metavar="gloo|nccl", help="Backend of torch.distributed: gloo (CPUs) or nccl (GPUs).")
    ] = "nccl"
    checkpoints: Annotated[
        Text, Option("--checkpoints", metavar="DIR", help="Checkpoint directory; a restarted job resumes from it.")
    ] = None
    log_dir: Annotated[Text, Option("--log-dir", metavar="DIR", help="Directory for metrics and logs.")] = None
    max_restarts: Annotated[
        int | None,
        Option(
            "--max-restarts", min=0, help="Maximum number of restarts after a rank fails. Default: 3; 0 for a script."
        ),
    ] = None

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
    """A scenario's or a script's ranks on the nodes of a cluster, with the arguments of the command there."""

    scenario: str  # the name of a shipped one, or the path of a file or a script on the nodes
    title: str
    nodes: int
    ranks_per_node: int  # with nccl each has a GPU
    resumes: bool = False  # whether it goes on from its last checkpoint when it is started again
    options: JobOptions = JobOptions()
    arguments: tuple[str, ...] = ()  # of a script

    @property
    def is_script(self) -> bool:
        """Whether torchrun starts a user's script, and not ``ringlab run``."""
        return is_script(self.scenario)

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
        restarts = (0 if self.is_script else 3) if self.options.max_restarts is None else self.options.max_restarts
        return [*nodes, "--max-restarts", str(restarts), "--rdzv-backend", "c10d"]

    def command(self) -> list[str]:
        """Return what each rank is, after the options of torchrun.

        >>> Job("star8", "Eight", nodes=8, ranks_per_node=1, resumes=True).command()
        ['-m', 'ringlab', 'run', '--backend', 'nccl', '--resume', 'auto', 'star8']
        >>> Job("train.py", "train.py", nodes=2, ranks_per_node=8, arguments=("--epochs", "3")).command()
        ['train.py', '--epochs', '3']
        """
        file = f"./{self.scenario}" if self.scenario.startswith("-") else self.scenario
        if self.is_script:
            return [file, *self.arguments]
        found = ["-m", "ringlab", "run", "--backend", self.options.backend]
        found += [word for override in self.options.overrides for word in ("--set", override)]
        found += ["--log-dir", self.options.log_dir] if self.options.log_dir else []
        found += ["--resume", "auto"] if self.resumes else []
        return [*found, file]


def is_script(reference: str) -> bool:
    """Return whether a reference is a script, not a scenario.

    >>> is_script("train.py"), is_script("star8")
    (True, False)
    """
    return reference.endswith(".py")


def load_job(scenario: str, options: JobOptions, output: Path | None, arguments: Sequence[str] = ()) -> Job:
    """Return the job of a scenario, or of a script with its arguments. Raise InputError, also for the output."""
    if is_script(scenario):
        check_outputs(output)
        return _script_job(scenario, options, arguments)
    if arguments:
        raise InputError(f"{scenario}: only a script takes arguments; remove {' '.join(arguments)}")
    loaded = load_scenario(scenario, *options.overrides)
    check_outputs(output)
    return make_job(loaded, scenario, options)


def make_job(scenario: LoadedScenario, reference: str, options: JobOptions | None = None) -> Job:
    """Return the job of a scenario, which ``reference`` names; its nodes are the scenario's hosts, unless said.

    Raise InputError for numbers of nodes and of ranks on each that do not make up the scenario's ranks, and for a
    backend that is not known.
    """
    options = JobOptions() if options is None else options
    _check_backend(options.backend)
    nodes, ranks_per_node = _lay_out(scenario, options.nodes, options.per_node)
    resumes = any(getattr(training, "checkpoints", None) for training in scenario.trainings)
    return Job(reference, scenario.title, nodes, ranks_per_node, resumes, options)


def _script_job(script: str, options: JobOptions, arguments: Sequence[str]) -> Job:
    """Return the job of a user's script. Raise InputError."""
    _check_backend(options.backend)
    if not Path(script).is_file():
        raise InputError(f"{script}: no such file; name a scenario or a script")
    for option, value in (
        ("--set", options.set_keys), ("--checkpoints", options.checkpoints), ("--log-dir", options.log_dir)
    ):  # fmt: skip
        if value:
            raise InputError(f"{script}: {option} is for scenarios; pass arguments of the script after --")
    if options.per_node is None:
        raise InputError(f"{script}: the number of ranks per node is missing; pass for example --gpus 8")
    return Job(script, script, options.nodes or 1, options.per_node, False, options, tuple(arguments))


def _check_backend(backend: str) -> None:
    if backend not in ("gloo", "nccl"):
        raise InputError(f"unknown backend {quote(backend)}; use gloo (CPUs) or nccl (GPUs)")


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
