"""What ``ringlab slurm`` and ``ringlab k8s`` read and write."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringlab.jobs.options import JobOptions
from ringlab.terminal.console import make_console
from ringlab.terminal.loading import load_scenario
from ringlab.terminal.output import check_outputs

if TYPE_CHECKING:
    from ringlab.jobs.job import Job

JobOutputOpt = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="The file; else it is printed.")
]


def load_job(scenario: str, options: JobOptions, output: Path | None) -> "Job":
    """Return the job that the options describe. Raise InputError, also for an output that cannot be written."""
    from ringlab.jobs.job import checkpoints_override, make_job

    kept = [checkpoints_override(options.checkpoints)] if options.checkpoints else []
    overrides = [*options.set_keys, *kept]
    loaded = load_scenario(scenario, *overrides)
    check_outputs(output)
    return make_job(
        loaded, scenario, overrides, nodes=options.nodes, ranks_per_node=options.per_node, backend=options.backend,
        log_dir=options.log_dir, max_restarts=options.max_restarts,
    )  # fmt: skip


def write_job(text: str, output: Path | None, submit: str) -> None:
    """Write a job to a file, or to standard output; say how it is submitted."""
    from collectives.output_files import write_text

    if output is None:
        typer.echo(text, nl=False)
        return
    write_text(output, text)
    make_console().print(f"The job: {output}; `{submit} {output}` submits it", soft_wrap=True)
