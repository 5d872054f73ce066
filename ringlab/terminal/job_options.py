"""The options that ``ringlab slurm`` and ``ringlab k8s`` share, and what they do with them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringlab.terminal.console import make_console
from ringlab.terminal.output import check_outputs

if TYPE_CHECKING:
    from ringlab.jobs.job import Job

JobOutputOpt = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="The file; else it is printed.")
]
NodesOpt = Annotated[int | None, typer.Option("-N", "--nodes", min=1, help="Nodes; else as the scenario has hosts.")]
PerNodeOpt = Annotated[
    int | None,
    typer.Option("--gpus-per-node", "--ranks-per-node", min=1, help="Ranks on each node, with nccl a GPU each."),
]
TimeLimitOpt = Annotated[
    str, typer.Option("-t", "--time", metavar="TIME", help="When the job ends at the latest: 24:00:00, 2-00:00:00.")
]
CheckpointsOpt = Annotated[
    str | None,
    typer.Option("--checkpoints", metavar="DIR", help="Where checkpoints are kept, from which the job goes on."),
]
LogDirOpt = Annotated[str | None, typer.Option("--log-dir", metavar="DIR", help="Where metrics and logs are kept.")]
RestartsOpt = Annotated[
    int, typer.Option("--max-restarts", min=0, help="How often all ranks are started again after one has failed.")
]


def load_job(
    scenario: str,
    set_keys: Sequence[str] | None,
    nodes: int | None,
    per_node: int | None,
    backend: str,
    checkpoints: str | None,
    log_dir: str | None,
    max_restarts: int,
    output: Path | None,
) -> "Job":
    """Return the job that the options describe. Raise InputError, also for an output that cannot be written."""
    from ringlab.jobs.job import checkpoints_override, make_job
    from ringlab.scenario import load

    overrides = [*(set_keys or ()), *([checkpoints_override(checkpoints)] if checkpoints else [])]
    loaded = load(scenario, *overrides)
    check_outputs(output)
    return make_job(
        loaded,
        scenario,
        overrides,
        nodes=nodes,
        ranks_per_node=per_node,
        backend=backend,
        log_dir=log_dir,
        max_restarts=max_restarts,
    )


def write_job(text: str, output: Path | None, submit: str) -> None:
    """Write a job to a file, or to standard output; say how it is submitted."""
    from collectives.output_files import write_text

    if output is None:
        typer.echo(text, nl=False)
        return
    write_text(output, text)
    make_console().print(f"The job: {output}; `{submit} {output}` submits it", soft_wrap=True)
