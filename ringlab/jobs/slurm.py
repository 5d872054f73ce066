"""A job as a batch file of Slurm, to be submitted by ``sbatch``. Source: the manual pages sbatch(1) and srun(1)."""

import re
from collections.abc import Iterator
from pathlib import Path

from collectives.errors import InputError
from collectives.quoting import cut, quote, quote_for_bash
from ringlab.jobs.job import FRESH_STORE, START, WAIT_S, Job, check_port, parse_time_limit
from ringlab.jobs.options import SlurmOptions

NOTICE_S = 120  # before the time limit the job is queued again, to go on from its last checkpoint
MOST_TITLE = 80

# In a directive Slurm reads quotes, backslashes, blanks and # as a shell would.
_VALUE = re.compile(r"[\w.,:+/%@=|&()*\[\]!~^-]+", re.ASCII)
_DIRECTIVE = re.compile(r"--[a-z][a-z-]*(?:=(?P<value>.*))?", re.ASCII | re.DOTALL)


def write_batch_file(job: Job, options: SlurmOptions) -> str:
    """Return the text of the batch file. Raise InputError for an option that Slurm would read as something else.

    >>> print(write_batch_file(Job("star8", "Eight hosts", 8, 1), SlurmOptions()).splitlines()[1])
    # Eight hosts: 8 ranks on 8 nodes, 1 GPU each. Written by `ringlab slurm`; `sbatch FILE` submits it.
    """
    title = cut(" ".join("".join(one if one.isprintable() else " " for one in job.title).split()), MOST_TITLE)
    return "\n".join(
        [
            "#!/bin/bash",
            f"# {title}: {job.size}. Written by `ringlab slurm`; `sbatch FILE` submits it.",
            *(f"#SBATCH {directive}" for directive in _directives(job, options)),
            "",
            "set -euo pipefail",
            f"cd -- {quote_for_bash(options.folder or str(Path.cwd()))}",
            *options.before,
            *_interface(options),
            f"export {FRESH_STORE}=1",
            *_endpoint(options),
            "",
            *_launch(job, options),
            "",
        ]
    )


def job_name(scenario: str) -> str:
    """Return a name for the job of a scenario.

    >>> job_name("scenarios/my run.toml")
    'ringlab-my-run'
    """
    words = re.sub(r"[^A-Za-z0-9_]+", "-", Path(scenario).stem).strip("-")
    return f"ringlab-{words}"[:60].rstrip("-")


def _directives(job: Job, options: SlurmOptions) -> Iterator[str]:
    """Yield the options of sbatch."""
    parse_time_limit(options.time_limit)
    given: dict[str, object] = {
        "job-name": options.name or job_name(job.scenario),
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
    }
    for name, value in given.items():
        if value is not None:
            yield f"--{name}={_checked(f'--{name}', str(value))}"
    yield "--open-mode=append"
    if job.resumes:
        yield "--requeue"
        yield f"--signal=B:USR1@{NOTICE_S}"
    else:
        yield "--no-requeue"
    for directive in options.directives:
        found = _DIRECTIVE.fullmatch(directive)
        if not found:
            raise InputError(f"--sbatch {quote(directive)}: give a long option of sbatch, such as --exclusive")
        if found["value"] is not None:
            _checked(f"--sbatch {directive.partition('=')[0]}", found["value"])
        yield directive


def _checked(name: str, value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise InputError(f"{name} is {quote(value)}; give letters, digits and none of blanks, quotes, $, \\ and #")
    return value


def _interface(options: SlurmOptions) -> Iterator[str]:
    if options.interface is not None:
        name = quote_for_bash(_checked("--interface", options.interface))
        yield f"export NCCL_SOCKET_IFNAME={name} GLOO_SOCKET_IFNAME={name}"


def _endpoint(options: SlurmOptions) -> Iterator[str]:
    """Yield what sets ``endpoint``, where the nodes meet."""
    port = "$((20000 + SLURM_JOB_ID % 10000))" if options.port is None else str(check_port(options.port))
    yield 'mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")'
    yield f"endpoint=${{nodes[0]}}:{port}"


def _launch(job: Job, options: SlurmOptions) -> Iterator[str]:
    """Yield what starts torchrun on every node and waits for it; a job that resumes is queued again in time."""
    if job.resumes:
        yield "# Before the time is over the job is queued again, and goes on from its last checkpoint."
        yield """trap 'scontrol requeue "$SLURM_JOB_ID"' USR1"""
    start = START.format(index="SLURM_NODEID", wait=WAIT_S)
    cpus = [f"--cpus-per-task={options.cpus_per_task}"] if options.cpus_per_task else []  # srun does not inherit it
    yield " ".join(["srun", "--ntasks-per-node=1", "--kill-on-bad-exit=1", *cpus, "bash", "-c", "\\"])
    yield f"  {quote_for_bash(start)} \\"
    words = " ".join(map(quote_for_bash, [options.python, *job.torchrun_options()]))
    yield f'  {words} --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$endpoint" \\'
    yield f"  {' '.join(map(quote_for_bash, job.command()))} &"
    yield "srun=$!"
    yield "while true; do"
    yield '  wait "$srun" && exit 0 || status=$?'
    yield '  kill -0 "$srun" 2> /dev/null || exit "$status"  # else a signal has ended the wait, not the ranks'
    yield "done"
