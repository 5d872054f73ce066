"""The command line, put together from ``ringlab.commands``; each command imports what it needs when it is called."""

import logging
import os
from typing import Annotated

import typer

from ringlab.commands.accuracy import accuracy
from ringlab.commands.animate import animate
from ringlab.commands.bench import bench
from ringlab.commands.calibrate import calibrate
from ringlab.commands.check import check
from ringlab.commands.compare import compare
from ringlab.commands.doctor import doctor
from ringlab.commands.explain import explain
from ringlab.commands.hardware import hardware
from ringlab.commands.list import list_all
from ringlab.commands.plan import plan
from ringlab.commands.plot import plot
from ringlab.commands.predict import predict
from ringlab.commands.profile import profile
from ringlab.commands.run import run
from ringlab.commands.winners import winners
from ringlab.jobs.kubernetes import k8s
from ringlab.jobs.slurm import slurm
from ringlab.terminal.failures import exit_with_a_line
from ringlab.terminal.shutdown import exit_on_signals

app = typer.Typer(
    help="Predict, run, compare and see how a training job scales.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    *(predict, explain, run, compare, animate, plot, check, bench, winners, calibrate, doctor, hardware, accuracy),
    *(profile, plan, slurm, k8s),
)
for command in COMMANDS:
    app.command()(command)
app.command(name="list")(list_all)


def main() -> None:
    """Run the command line and exit: 0 done, 1 the run or check failed, 2 the input was refused, 130 interrupted."""
    os.environ["MPLBACKEND"] = "agg"  # a command draws into files; one for windows may not even be there
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it says where it cannot cache its fonts, and draws
    with exit_on_signals():
        exit_with_a_line(app)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"ringlab {version('ringlab')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Predict, run, compare and see how a training job scales."""
    from collectives.input_files import inputs_protected  # numpy comes with it, for which --help need not wait
    from collectives.output_files import pipes_kept_open

    context.with_resource(inputs_protected())
    context.with_resource(pipes_kept_open())
