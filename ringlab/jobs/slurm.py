"""``ringlab slurm``: a job as a batch file, to be submitted by ``sbatch``.

Source: the manual pages sbatch(1) and srun(1).
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from jinja2 import Environment, StrictUndefined
from typer import Option

from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.quoting import cut, quote, quote_for_bash
from ringlab.jobs.job import Job, JobOptions, Text, load_job
from ringlab.shared.options import with_groups
from ringlab.shared.output import make_console

NOTICE_S = 120  # before the time limit the job is queued again, to go on from its last checkpoint
WAIT_S = 900  # how long a node waits for the others, which may have to fetch an image of many gigabytes

# The port goes by the job's number, so that two jobs on one node do not meet; srun does not inherit --cpus-per-task.
# Without TORCH_DISABLE_SHARE_RDZV_TCP_STORE ranks meet in the store of the agents, which keeps their addresses from
# before a restart (https://github.com/pytorch/pytorch/issues/135712). Only the first node hosts the store; torchrun's
# own guess goes by the host's name, which a cluster may spell in several ways. $0 is Python and "$@" the rest.
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
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
endpoint=${nodes[0]}:$((20000 + SLURM_JOB_ID % 10000))

{% if job.resumes %}
# Before the time is over the job is queued again, and goes on from its last checkpoint.
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
  kill -0 "$srun" 2> /dev/null || exit "$status"  # else a signal has ended the wait, not the ranks
done
"""

# In a directive Slurm reads quotes, backslashes, blanks and # as a shell would.
_VALUE = re.compile(r"[\w.,:+/%@=|&()*\[\]!~^-]+", re.ASCII)
_TIME_LIMIT = re.compile(r"(?:\d{1,4}-)?\d{1,6}(?::\d{1,4}){0,2}", re.ASCII)
_DIRECTIVE = re.compile(r"--[a-z][a-z-]*(?:=(?P<value>.*))?", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class SlurmOptions:
    """The resources to request from Slurm. None leaves the default to Slurm."""

    time_limit: Annotated[
        str, Option("-t", "--time", metavar="TIME", help="Time limit, such as 24:00:00 or 2-00:00:00.")
    ] = "24:00:00"
    partition: Annotated[Text, Option("-p", "--partition", metavar="NAME", help="Slurm partition to submit to.")] = None
    account: Annotated[Text, Option("-A", "--account", metavar="NAME", help="Slurm account to charge.")] = None
    cpus_per_task: Annotated[
        int | None, Option("-c", "--cpus-per-task", min=1, metavar="N", help="CPU cores per node, shared by its ranks.")
    ] = None
    interface: Annotated[
        Text, Option("--interface", metavar="NAME", help="Network interface that connects the nodes.")
    ] = None
    python: Annotated[
        str,
        Option("--python", metavar="FILE", help="Path of a Python interpreter on the nodes, with Ringlab installed."),
    ] = sys.executable
    directives: Annotated[
        list[str], Option("--sbatch", metavar="--OPTION=VALUE", help="Other option of sbatch. Repeatable.")
    ] = field(default_factory=list)  # fmt: skip
    before: Annotated[
        list[str],
        Option("--before", metavar="LINE", help="Shell command to run first, such as 'module load cuda'. Repeatable."),
    ] = field(default_factory=list)  # fmt: skip
    folder: Text = None  # where the job works; None: here


@with_groups
def slurm(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO|SCRIPT.py", help="Scenario, or a script of your own for torchrun.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]", help="Arguments of the script.")
    ] = None,
    output: Annotated[
        Path | None, Option("-o", "--output", metavar="FILE", help="Output file. Default: standard output.")
    ] = None,
    *,
    job: JobOptions,
    options: SlurmOptions,
) -> None:
    """Write a Slurm batch script that runs a scenario or a script under torchrun. Submit it with `sbatch FILE`."""
    text = write_batch_file(load_job(scenario, job, output, arguments or ()), options)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_text(output, text)
    make_console().print(f"The job: {output}; `sbatch {output}` submits it", soft_wrap=True)


def write_batch_file(job: Job, options: SlurmOptions) -> str:
    """Return the text of the batch file. Raise InputError for an option that Slurm would read as something else.

    >>> print(write_batch_file(Job("star8", "Eight hosts", 8, 1), SlurmOptions()).splitlines()[1])
    # Eight hosts: 8 ranks on 8 nodes, 1 GPU each. Written by `ringlab slurm`; `sbatch FILE` submits it.
    """
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
        timeouts=f"join_timeout={WAIT_S},read_timeout={WAIT_S}",
        torchrun=[options.python, *job.torchrun_options()],
    )


def _directives(job: Job, options: SlurmOptions) -> Iterator[str]:
    """Yield the options of sbatch."""
    check_time_limit(options.time_limit)
    given: dict[str, object] = {
        "job-name": job.name,
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
    for name, value in given.items():
        if value is not None and f"--{name}" not in others:
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


def check_time_limit(text: str) -> None:
    """Raise InputError for a text that Slurm would not read as a time limit, or would read as no limit.

    >>> check_time_limit("90"), check_time_limit("2:00:00"), check_time_limit("1-12")
    (None, None, None)
    """
    if not _TIME_LIMIT.fullmatch(text) or not re.search("[1-9]", text):
        raise InputError(f"invalid time limit {quote(text)}: write minutes, hours as 24:00:00, or days as 2-00:00:00")
