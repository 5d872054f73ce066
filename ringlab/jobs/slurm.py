"""``ringlab slurm``: a job as a batch file, to be submitted by ``sbatch``.

Source: the manual pages sbatch(1) and srun(1).
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from jinja2 import Environment, StrictUndefined
from typer import Option

from collectives.errors import InputError
from collectives.quoting import cut, quote, quote_for_bash
from ringlab.jobs.job import (
    FRESH_STORE,
    Job,
    JobOptions,
    OutputOpt,
    Text,
    TimeLimitOpt,
    check_port,
    load_job,
    parse_time_limit,
    start_of_node,
    write_job,
)
from ringlab.shared.options import ScenarioArg, with_groups

NOTICE_S = 120  # before the time limit the job is queued again, to go on from its last checkpoint

# The port goes by the job's number, so that two jobs on one node do not meet; srun does not inherit --cpus-per-task.
BATCH_FILE = """\
#!/bin/bash
# {{ title }}: {{ job.size }}. Written by `ringlab slurm`; `sbatch FILE` submits it.
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
export {{ fresh_store }}=1
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
endpoint=${nodes[0]}:{{ options.port or "$((20000 + SLURM_JOB_ID % 10000))" }}

{% if job.resumes %}
# Before the time is over the job is queued again, and goes on from its last checkpoint.
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
{% endif %}
srun --ntasks-per-node=1 --kill-on-bad-exit=1
{%- if options.cpus_per_task %} --cpus-per-task={{ options.cpus_per_task }}{% endif %} bash -c \\
  {{ start | bash }} \\
  {{ torchrun | map("bash") | join(" ") }} --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$endpoint" \\
  {{ job.command() | map("bash") | join(" ") }} &
srun=$!
while true; do
  wait "$srun" && exit 0 || status=$?
  kill -0 "$srun" 2> /dev/null || exit "$status"  # else a signal has ended the wait, not the ranks
done
"""

# In a directive Slurm reads quotes, backslashes, blanks and # as a shell would.
_VALUE = re.compile(r"[\w.,:+/%@=|&()*\[\]!~^-]+", re.ASCII)
_DIRECTIVE = re.compile(r"--[a-z][a-z-]*(?:=(?P<value>.*))?", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class SlurmOptions:
    """What a user says of his cluster. None is left to Slurm."""

    time_limit: TimeLimitOpt = "24:00:00"
    name: Annotated[Text, Option("--job-name", metavar="NAME", help="Name of the job.")] = None
    partition: Annotated[Text, Option("-p", "--partition", metavar="NAME", help="Slurm partition to submit to.")] = None
    account: Annotated[Text, Option("-A", "--account", metavar="NAME", help="Slurm account to charge.")] = None
    qos: Annotated[Text, Option("--qos", metavar="NAME", help="Slurm quality of service (QOS).")] = None
    constraint: Annotated[
        Text, Option("-C", "--constraint", metavar="FEATURES", help="Node features that Slurm must match.")
    ] = None
    cpus_per_task: Annotated[
        int | None, Option("-c", "--cpus-per-task", min=1, metavar="N", help="CPU cores per node, shared by its ranks.")
    ] = None
    memory: Annotated[Text, Option("--mem", metavar="SIZE", help="Memory per node, such as 200G.")] = None
    log: Annotated[str, Option("--log", metavar="PATTERN", help="Log file of Slurm, as a filename pattern.")] = (
        "%x-%j.log"
    )
    port: Annotated[
        int | None,
        Option(
            "--port", metavar="N", help="Port of the first node, for the rendezvous. Default: derived from the job ID."
        ),
    ] = None
    interface: Annotated[
        Text, Option("--interface", metavar="NAME", help="Network interface that connects the nodes.")
    ] = None
    python: Annotated[
        str,
        Option("--python", metavar="FILE", help="Path of a Python interpreter on the nodes, with Ringlab installed."),
    ] = sys.executable
    directives: Annotated[
        list[str], Option("--sbatch", metavar="--OPTION=VALUE", help="Additional sbatch option. Repeatable.")
    ] = field(default_factory=list)  # fmt: skip
    before: Annotated[
        list[str],
        Option("--before", metavar="LINE", help="Shell command to run first, such as 'module load cuda'. Repeatable."),
    ] = field(default_factory=list)  # fmt: skip
    folder: Text = None  # where the job works; None: here


@with_groups
def slurm(scenario: ScenarioArg, output: OutputOpt = None, *, job: JobOptions, options: SlurmOptions) -> None:
    """Write a Slurm batch script that runs the scenario under torchrun. Submit it with `sbatch FILE`."""
    write_job(write_batch_file(load_job(scenario, job, output), options), output, "sbatch")


def write_batch_file(job: Job, options: SlurmOptions) -> str:
    """Return the text of the batch file. Raise InputError for an option that Slurm would read as something else.

    >>> print(write_batch_file(Job("star8", "Eight hosts", 8, 1), SlurmOptions()).splitlines()[1])
    # Eight hosts: 8 ranks on 8 nodes, 1 GPU each. Written by `ringlab slurm`; `sbatch FILE` submits it.
    """
    if options.port is not None:
        check_port(options.port)
    if options.interface is not None:
        _checked("--interface", options.interface)
    printable = "".join(one if one.isprintable() else " " for one in job.title)
    environment = Environment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    environment.filters["bash"] = quote_for_bash
    return environment.from_string(BATCH_FILE).render(
        job=job,
        options=options,
        title=cut(" ".join(printable.split()), 80),
        directives=_directives(job, options),
        folder=options.folder or str(Path.cwd()),
        fresh_store=FRESH_STORE,
        start=start_of_node("SLURM_NODEID"),
        torchrun=[options.python, *job.torchrun_options()],
    )


def _directives(job: Job, options: SlurmOptions) -> Iterator[str]:
    """Yield the options of sbatch."""
    parse_time_limit(options.time_limit)
    given: dict[str, object] = {
        "job-name": options.name or job.name,
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": job.gpus_per_node or None,
        "cpus-per-task": options.cpus_per_task,
        "mem": options.memory,
        "time": options.time_limit,
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "output": options.log,
        "open-mode": "append",
    }
    for name, value in given.items():
        if value is not None:
            yield f"--{name}={_checked(f'--{name}', str(value))}"
    yield from ("--requeue", f"--signal=B:USR1@{NOTICE_S}") if job.resumes else ("--no-requeue",)
    for directive in options.directives:
        found = _DIRECTIVE.fullmatch(directive)
        if not found:
            raise InputError(f"--sbatch {quote(directive)}: expected a long sbatch option, such as --exclusive")
        if found["value"] is not None:
            _checked(f"--sbatch {directive.partition('=')[0]}", found["value"])
        yield directive


def _checked(name: str, value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise InputError(f"{name} {quote(value)} must not contain blanks, quotes, $, \\ or #")
    return value
