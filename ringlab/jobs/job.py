"""A job: the ranks of a scenario on the nodes of a cluster, and how torchrun starts them there."""

import json
import re
from collections import Counter
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
