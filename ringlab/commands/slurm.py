"""``ringlab slurm``: write a Slurm batch script that runs a scenario or a script under torchrun.

Source: the manual pages sbatch(1) and srun(1).
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from jinja2 import Environment, StrictUndefined

from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.quoting import cut, quote, quote_for_bash
from collectives.units import count
from ringlab.session import BACKENDS, load_scenario
from ringlab.shared.options import option, output_option, with_groups
from ringlab.shared.output import check_outputs, make_console
from scenarios import LoadedScenario

Text = str | None
NOTICE_S = 120  # the job is requeued this long before its time limit, to resume from its last checkpoint
WAIT_S = 900  # timeout for the other nodes, which may first download an image of many gigabytes

# The port follows from the job's number, so that two jobs on one node use different ports. srun does not inherit
# --cpus-per-task. Without TORCH_DISABLE_SHARE_RDZV_TCP_STORE, ranks use the agents' store, which keeps addresses from
# before a restart (https://github.com/pytorch/pytorch/issues/135712). The first node hosts the store; torchrun's own
# guess compares host names, which a cluster may spell in several ways. $0 is Python and "$@" the rest.
BATCH_FILE = """\
#!/bin/bash
# {{ title }}: {{ size }}. Written by `ringlab slurm`; `sbatch FILE` submits it.
{% for directive in directives %}
#SBATCH {{ directive }}
{% endfor %}

set -euo pipefail
cd -- {{ folder | bash }}
{% for line in options.before %}
{{ line }}
{% endfor %}
{% if options.interface %}
export NCCL_SOCKET_IFNAME={{ options.interface | bash }} GLOO_SOCKET_IFNAME={{ options.interface | bash }}
{% endif %}
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
endpoint=${nodes[0]}:$((20000 + SLURM_JOB_ID % 10000))

{% if job.resumes %}
# Before its time limit, the job is requeued and resumes from its last checkpoint.
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
{% endif %}
srun --ntasks-per-node=1 --kill-on-bad-exit=1
{%- if options.cpus_per_task %} --cpus-per-task={{ options.cpus_per_task }}{% endif %} bash -c \\
  'exec "$0" -m torch.distributed.run --rdzv-conf "is_host=$((SLURM_NODEID == 0)),{{ timeouts }}" "$@"' \\
  {{ torchrun | map("bash") | join(" ") }} --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$endpoint" \\
  {{ job.command() | map("bash") | join(" ") }} &
srun=$!
while true; do
  wait "$srun" && exit 0 || status=$?
  kill -0 "$srun" 2> /dev/null || exit "$status"  # otherwise a signal ended the wait, not the ranks
done
"""

# In a directive, Slurm reads quotes, backslashes, blanks and # as a shell would.
_VALUE = re.compile(r"[\w.,:+/%@=|&()*\[\]!~^-]+", re.ASCII)
_DIRECTIVE = re.compile(r"--[a-z][a-z-]*(?:=(?P<value>.*))?", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class JobOptions:
    """The options of a job: its nodes, ranks per node, files and restarts."""

    set_keys: list[str] = option([], "--set", help="Override a key of the scenario. Repeatable.", metavar="KEY=VALUE")
    nodes: int | None = option(
        None, "-N", "--nodes", help="Number of nodes. Default: ranks divided by ranks per node; 1 for a script.", min=1
    )
    per_node: int | None = option(
        None,
        "--gpus-per-node",
        "--gpus",
        "--ranks-per-node",
        help="Ranks per node. With nccl, each rank uses one GPU. Default: as in the scenario; required for a script.",
        min=1,
    )
    backend: str = option("nccl", help="Backend of torch.distributed: gloo (CPUs) or nccl (GPUs).", metavar="gloo|nccl")
    checkpoints: Text = option(None, help="Checkpoint directory. A restarted job resumes from it.", metavar="DIR")
    log_dir: Text = option(None, help="Directory for training metrics and logs.", metavar="DIR")
    max_restarts: int | None = option(
        None, help="Maximum number of restarts after a rank fails. Default: 3; 0 for a script.", min=0
    )

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InputError(f"unknown backend {quote(self.backend)}; use gloo (CPUs) or nccl (GPUs)")

    @property
    def overrides(self) -> list[str]:
        folder = json.dumps(self.checkpoints, ensure_ascii=False)
        return [*self.set_keys, *([f"training.checkpoints={folder}"] if self.checkpoints else [])]


@dataclass(frozen=True)
class SlurmOptions:
    """The resources and settings of a Slurm job. The script omits options that are None, so Slurm's defaults apply."""

    time_limit: str = option(
        "24:00:00", "-t", "--time", help="Time limit, such as 24:00:00 or 2-00:00:00.", metavar="TIME"
    )
    partition: Text = option(None, "-p", "--partition", help="Slurm partition to submit to.", metavar="NAME")
    account: Text = option(None, "-A", "--account", help="Slurm account to charge.", metavar="NAME")
    cpus_per_task: int | None = option(
        None, "-c", "--cpus-per-task", help="CPU cores per node, shared by its ranks.", min=1, metavar="N"
    )
    interface: Text = option(
        None, help="Network interface that connects the nodes. Default: NCCL and gloo choose.", metavar="NAME"
    )
    python: str = option(
        sys.executable, help="Path of a Python interpreter on the nodes, with Ringlab installed.", metavar="FILE"
    )
    directives: list[str] = option([], "--sbatch", help="Extra sbatch option. Repeatable.", metavar="--OPTION=VALUE")
    before: list[str] = option(
        [], help="Shell command to run first, such as 'module load cuda'. Repeatable.", metavar="LINE"
    )
    folder: Text = None  # working directory of the job; None: the current one


@with_groups
def slurm(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO|SCRIPT.py", help="Scenario, or your own script for torchrun.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]", help="Arguments of the script.")
    ] = None,
    output: Annotated[Path | None, output_option("Output file. Default: standard output.")] = None,
    *,
    job: JobOptions,
    options: SlurmOptions,
) -> None:
    """Write a Slurm batch script that runs a scenario or a script under torchrun. Submit it with `sbatch FILE`."""
    if scenario.endswith(".py"):
        check_outputs(output)
        planned = _make_script_job(scenario, job, arguments or ())
    elif arguments:
        raise InputError(f"{scenario}: only a script takes arguments; remove {' '.join(arguments)}")
    else:
        loaded = load_scenario(scenario, *job.overrides)
        check_outputs(output)
        planned = make_job(loaded, scenario, job)
    text = write_batch_file(planned, options)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_text(output, text)
    make_console().print(f"Saved to {output}. Submit it with `sbatch {output}`.", soft_wrap=True)


@dataclass(frozen=True)
class Job:
    """A scenario or a script to run on the nodes of a cluster."""

    scenario: str  # a built-in scenario, or the path of a scenario file or a script on the nodes
    title: str
    nodes: int
    ranks_per_node: int
    resumes: bool = False  # a restarted job resumes from its last checkpoint
    options: JobOptions = JobOptions()
    arguments: tuple[str, ...] = ()  # of a script

    @property
    def is_script(self) -> bool:
        """Whether torchrun starts a user's script instead of ``ringlab run``."""
        return self.scenario.endswith(".py")

    @property
    def gpus_per_node(self) -> int:
        """The number of GPUs of a node: one per rank with nccl, and 0 with gloo."""
        return self.ranks_per_node if self.options.backend == "nccl" else 0

    def torchrun_options(self) -> list[str]:
        """Return the options of torchrun that do not depend on the cluster."""
        nodes = ["--nnodes", str(self.nodes), "--nproc-per-node", str(self.ranks_per_node)]
        restarts = (0 if self.is_script else 3) if self.options.max_restarts is None else self.options.max_restarts
        return [*nodes, "--max-restarts", str(restarts), "--rdzv-backend", "c10d"]

    def command(self) -> list[str]:
        """Return the program that each rank runs and its arguments, which follow torchrun's options.

        >>> Job("star8", "Eight", nodes=8, ranks_per_node=1, resumes=True).command()
        ['-m', 'ringlab', 'run', '--backend', 'nccl', '--resume', 'auto', 'star8']
        """
        file = f"./{self.scenario}" if self.scenario.startswith("-") else self.scenario
        if self.is_script:
            return [file, *self.arguments]
        words = ["-m", "ringlab", "run", "--backend", self.options.backend]
        words += [word for override in self.options.overrides for word in ("--set", override)]
        words += ["--log-dir", self.options.log_dir] if self.options.log_dir else []
        words += ["--resume", "auto"] if self.resumes else []
        return [*words, file]


def make_job(scenario: LoadedScenario, reference: str, options: JobOptions | None = None) -> Job:
    """Return the Slurm job that runs a scenario. ``reference`` is the scenario's name or path.

    By default, each machine of the scenario's cluster is a node. Raises InputError if the nodes have different numbers
    of ranks, or if their total is not the scenario's number of ranks.
    """
    options = JobOptions() if options is None else options
    cluster, nodes, per_node = scenario.cluster, options.nodes, options.per_node
    if nodes is None and per_node is None:
        on_each = {*Counter(cluster.machines()).values()}
        if len(on_each) > 1:
            raise InputError(f"the hosts of {cluster.title} have different numbers of ranks; pass --gpus-per-node")
        (per_node,) = on_each
    if per_node is None:
        per_node = max(1, cluster.world_size // (nodes or 1))
    nodes = nodes or max(1, cluster.world_size // per_node)
    if nodes * per_node != cluster.world_size:
        raise InputError(
            f"{cluster.title} has {cluster.world_size} ranks, but {nodes} nodes with {per_node} ranks each have "
            f"{nodes * per_node}; change --nodes, --gpus-per-node or the scenario"
        )
    resumes = any(getattr(training, "checkpoints", None) for training in scenario.trainings)
    return Job(reference, scenario.title, nodes, per_node, resumes, options)


def _make_script_job(script: str, options: JobOptions, arguments: Sequence[str]) -> Job:
    if not Path(script).is_file():
        raise InputError(f"{script}: no such file; pass a scenario or a script")
    for key in ("set_keys", "checkpoints", "log_dir"):
        if getattr(options, key):
            name = key.removesuffix("_keys").replace("_", "-")
            raise InputError(f"{script}: --{name} only applies to scenarios; pass arguments of the script after --")
    if options.per_node is None:
        raise InputError(f"{script}: the number of ranks per node is missing; pass for example --gpus 8")
    return Job(script, script, options.nodes or 1, options.per_node, False, options, tuple(arguments))


def write_batch_file(job: Job, options: SlurmOptions) -> str:
    """Return the batch script. Raise InputError if an option has blanks or other characters that Slurm interprets.

    >>> print(write_batch_file(Job("star8", "Eight hosts", 8, 1), SlurmOptions()).splitlines()[1])
    # Eight hosts: 8 ranks on 8 nodes, 1 GPU each. Written by `ringlab slurm`; `sbatch FILE` submits it.
    """
    if options.interface is not None:
        _checked("--interface", options.interface)
    printable = "".join(letter if letter.isprintable() else " " for letter in job.title)
    gpus = f"{count(job.gpus_per_node, 'GPU') if job.gpus_per_node else 'no GPU'}{' each' * (job.nodes > 1)}"
    environment = Environment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    environment.filters["bash"] = quote_for_bash
    return environment.from_string(BATCH_FILE).render(
        job=job,
        options=options,
        title=cut(" ".join(printable.split()), 80),
        size=f"{job.nodes * job.ranks_per_node} ranks on {count(job.nodes, 'node')}, {gpus}",
        directives=_directives(job, options),
        folder=options.folder or str(Path.cwd()),
        timeouts=f"join_timeout={WAIT_S},read_timeout={WAIT_S}",
        torchrun=[options.python, *job.torchrun_options()],
    )


def _directives(job: Job, options: SlurmOptions) -> Iterator[str]:
    words = re.sub(r"[^a-z0-9]+", "-", Path(job.scenario).stem.lower()).strip("-")
    directives: dict[str, object] = {
        "job-name": f"ringlab-{words}"[:52].rstrip("-"),
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": job.gpus_per_node or None,
        "cpus-per-task": options.cpus_per_task,
        "time": options.time_limit,
        "partition": options.partition,
        "account": options.account,
        "output": "%x-%j.log",
        "open-mode": "append",
    }
    others = [directive.partition("=")[0] for directive in options.directives]
    for name, value in directives.items():
        if value is not None and f"--{name}" not in others:
            yield f"--{name}={_checked(f'--{name}', str(value))}"
    yield from ("--requeue", f"--signal=B:USR1@{NOTICE_S}") if job.resumes else ("--no-requeue",)
    for directive in options.directives:
        match = _DIRECTIVE.fullmatch(directive)
        if not match:
            raise InputError(f"--sbatch {quote(directive)}: expected a long sbatch option, such as --exclusive")
        if match["value"] is not None:
            _checked(f"--sbatch {directive.partition('=')[0]}", match["value"])
        yield directive


def _checked(name: str, value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise InputError(f"{name} {quote(value)} must not contain blanks, quotes, $, \\ or #")
    return value
