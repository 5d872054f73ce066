"""The command ``ringlab slurm``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ringlab.terminal.job_options import (
    CheckpointsOpt,
    JobOutputOpt,
    LogDirOpt,
    NodesOpt,
    PerNodeOpt,
    RestartsOpt,
    TimeLimitOpt,
)
from ringlab.terminal.options import BackendOpt, ScenarioArg, SetOpt

TextOpt = str | None


def slurm(
    scenario: ScenarioArg,
    output: JobOutputOpt = None,
    set_keys: SetOpt = None,
    nodes: NodesOpt = None,
    per_node: PerNodeOpt = None,
    backend: BackendOpt = "nccl",
    time_limit: TimeLimitOpt = "24:00:00",
    checkpoints: CheckpointsOpt = None,
    log_dir: LogDirOpt = None,
    max_restarts: RestartsOpt = 3,
    name: Annotated[TextOpt, typer.Option("--job-name", metavar="NAME", help="The job's name.")] = None,
    partition: Annotated[TextOpt, typer.Option("-p", "--partition", metavar="NAME", help="The partition.")] = None,
    account: Annotated[TextOpt, typer.Option("-A", "--account", metavar="NAME", help="Who pays.")] = None,
    qos: Annotated[TextOpt, typer.Option("--qos", metavar="NAME", help="The quality of service.")] = None,
    constraint: Annotated[
        TextOpt, typer.Option("-C", "--constraint", metavar="FEATURES", help="What the nodes are to have.")
    ] = None,
    cpus_per_task: Annotated[
        int | None,
        typer.Option("-c", "--cpus-per-task", min=1, metavar="N", help="Cores of a node, for all its ranks."),
    ] = None,
    memory: Annotated[TextOpt, typer.Option("--mem", metavar="SIZE", help="Memory of a node, such as 200G.")] = None,
    log: Annotated[str, typer.Option("--log", metavar="PATTERN", help="Slurm's own log.")] = "%x-%j.log",
    port: Annotated[
        int | None, typer.Option(metavar="N", help="Where the first node listens; else by the job's number.")
    ] = None,
    interface: Annotated[
        TextOpt, typer.Option(metavar="NAME", help="The interface by which the nodes reach each other.")
    ] = None,
    python: Annotated[
        str, typer.Option(metavar="FILE", help="The Python of the nodes that has Ringlab.")
    ] = sys.executable,
    sbatch: Annotated[
        list[str] | None, typer.Option(metavar="--OPTION=VALUE", help="One more option of sbatch.")
    ] = None,
    before: Annotated[
        list[str] | None, typer.Option(metavar="LINE", help="A shell line to do first, such as 'module load cuda'.")
    ] = None,
) -> None:
    """Write a batch file of Slurm that runs the scenario under torchrun; `sbatch FILE` submits it."""
    from ringlab.jobs.slurm import SlurmOptions, write_batch_file
    from ringlab.terminal.job_options import load_job, write_job

    job = load_job(scenario, set_keys, nodes, per_node, backend, checkpoints, log_dir, max_restarts, output)
    options = SlurmOptions(
        time_limit,
        name,
        partition,
        account,
        qos,
        constraint,
        cpus_per_task,
        memory,
        log,
        port,
        interface,
        python,
        str(Path.cwd()),
        sbatch or (),
        before or (),
    )
    write_job(write_batch_file(job, options), output, "sbatch")
