"""What a user says of his job and his cluster: each field is an option of ``ringlab slurm`` or ``ringlab k8s``.

Light to import, as the command line asks for all options before it knows the command.
"""

import sys
from dataclasses import dataclass, field
from typing import Annotated

from typer import Option

PORT = 29500
RESTARTS = 3  # of all ranks, after one of them has failed, before the job gives up

TimeLimit = Annotated[
    str, Option("-t", "--time", metavar="TIME", help="When the job ends at the latest: 24:00:00, 2-00:00:00.")
]
Text = str | None


@dataclass(frozen=True)
class JobOptions:
    """The nodes, the ranks on each, and what they keep."""

    set_keys: Annotated[
        list[str], Option("--set", metavar="KEY=VALUE", help="Change a key of the scenario.")
    ] = field(default_factory=list)  # fmt: skip
    nodes: Annotated[int | None, Option("-N", "--nodes", min=1, help="Nodes; else as the scenario has hosts.")] = None
    per_node: Annotated[
        int | None,
        Option("--gpus-per-node", "--ranks-per-node", min=1, help="Ranks on each node, with nccl a GPU each."),
    ] = None
    backend: Annotated[str, Option(metavar="gloo|nccl", help="What torch.distributed sends with.")] = "nccl"
    checkpoints: Annotated[
        Text, Option("--checkpoints", metavar="DIR", help="Where checkpoints are kept, from which the job goes on.")
    ] = None
    log_dir: Annotated[Text, Option("--log-dir", metavar="DIR", help="Where metrics and logs are kept.")] = None
    max_restarts: Annotated[
        int, Option("--max-restarts", min=0, help="How often all ranks are started again after one has failed.")
    ] = RESTARTS


@dataclass(frozen=True)
class SlurmOptions:
    """What a user says of his cluster. None is left to Slurm."""

    time_limit: TimeLimit = "24:00:00"
    name: Annotated[Text, Option("--job-name", metavar="NAME", help="The job's name.")] = None
    partition: Annotated[Text, Option("-p", "--partition", metavar="NAME", help="The partition.")] = None
    account: Annotated[Text, Option("-A", "--account", metavar="NAME", help="Who pays.")] = None
    qos: Annotated[Text, Option("--qos", metavar="NAME", help="The quality of service.")] = None
    constraint: Annotated[
        Text, Option("-C", "--constraint", metavar="FEATURES", help="What the nodes are to have.")
    ] = None
    cpus_per_task: Annotated[
        int | None, Option("-c", "--cpus-per-task", min=1, metavar="N", help="Cores of a node, for all its ranks.")
    ] = None
    memory: Annotated[Text, Option("--mem", metavar="SIZE", help="Memory of a node, such as 200G.")] = None
    log: Annotated[str, Option("--log", metavar="PATTERN", help="Slurm's own log.")] = "%x-%j.log"
    port: Annotated[
        int | None, Option("--port", metavar="N", help="Where the first node listens; else by the job's number.")
    ] = None  # by that number two jobs on one node do not meet
    interface: Annotated[
        Text, Option("--interface", metavar="NAME", help="The interface by which the nodes reach each other.")
    ] = None
    python: Annotated[str, Option("--python", metavar="FILE", help="The Python of the nodes that has Ringlab.")] = (
        sys.executable
    )
    directives: Annotated[
        list[str], Option("--sbatch", metavar="--OPTION=VALUE", help="One more option of sbatch.")
    ] = field(default_factory=list)  # fmt: skip
    before: Annotated[
        list[str],
        Option("--before", metavar="LINE", help="A shell line to do first, such as 'module load cuda'."),
    ] = field(default_factory=list)  # fmt: skip
    folder: Text = None  # where the job works; None: here


@dataclass(frozen=True)
class KubernetesOptions:
    """What a user says of his cluster. None is left to Kubernetes."""

    image: Annotated[str, Option("--image", metavar="NAME", help="An image that has Ringlab.")]
    name: Annotated[Text, Option("--name", metavar="NAME", help="The Job's name.")] = None
    namespace: Annotated[Text, Option("-n", "--namespace", metavar="NAME", help="Its namespace.")] = None
    time_limit: TimeLimit = "24:00:00"
    claim: Annotated[
        Text, Option("--claim", metavar="NAME", help="The PersistentVolumeClaim in which checkpoints and logs stay.")
    ] = None  # where the ranks work, mounted at /data
    cpus: Annotated[Text, Option("--cpus", metavar="N", help="Cores of a pod, for all its ranks.")] = None
    memory: Annotated[Text, Option("--memory", metavar="SIZE", help="Memory of a pod, such as 64Gi.")] = None
    port: Annotated[int, Option("--port", metavar="N", help="Where the first pod listens.")] = PORT
    python: Annotated[str, Option("--python", metavar="FILE", help="The image's Python that has Ringlab.")] = "python"
    service_account: Annotated[Text, Option("--service-account", metavar="NAME", help="The pods' service account.")] = (
        None
    )
    pull_secret: Annotated[Text, Option("--pull-secret", metavar="NAME", help="The Secret that fetches the image.")] = (
        None
    )
    node_selector: Annotated[
        list[str], Option("--node-selector", metavar="KEY=VALUE", help="A label that the nodes have.")
    ] = field(default_factory=list)  # fmt: skip
    labels: Annotated[
        list[str], Option("--label", metavar="KEY=VALUE", help="A label for the Job and its pods.")
    ] = field(default_factory=list)  # fmt: skip
    environment: Annotated[
        list[str], Option("--env", metavar="NAME=VALUE", help="An environment variable of the ranks.")
    ] = field(default_factory=list)  # fmt: skip
