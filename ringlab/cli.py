"""The command line: the names of commands, with what each does; a command's module is loaded when it is called."""

import logging
import os
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

import ringlab
from collectives.input_files import inputs_protected
from ringlab.shared.failures import exit_with_a_line
from ringlab.shared.signals import exit_on_signals

PURPOSES = {  # what commands are for; by name: where the function is, and the first line of its help
    "Predict": {
        "predict": (
            "ringlab.commands.predicting.predict:command",
            "Simulate: times, algbw, busbw, training step by phase, scaling efficiency. ^C keeps what is done.",
        ),
        "explain": (
            "ringlab.commands.predicting.explain:command",
            "Say what NCCL would pick at each size and why: its topology, channels, rings and trees, and every "
            "candidate.",
        ),
        "winners": (
            "ringlab.commands.predicting.winners:command",
            "Show where each algorithm wins by the model: the size of the buffer against the number of ranks.",
        ),
        "search": (
            "ringlab.commands.predicting.search:search_meshes",
            "Search all meshes of data, tensor, pipeline, context and expert parallelism for a language model on GPUs.",
        ),
        "plan": (
            "ringlab.commands.predicting.plan:command",
            "Choose the cheapest machines to rent for a training: time against money, how sure, and what to "
            "measure first.",
        ),
        "profile": (
            "ringlab.commands.measuring.profile:command",
            "Say what a model computes, reads and keeps, layer by layer, and how long that takes on one device.",
        ),
        "replay": (
            "ringlab.commands.predicting.replay:command",
            "Replay a recorded run on other networks and by other algorithms, without running it again.",
        ),
    },
    "Run": {
        "run": (
            "ringlab.commands.measuring.run:command",
            "Run the scenario on real processes of this machine; also under torchrun.",
        ),
        "compare": (
            "ringlab.commands.measuring.compare:command",
            "Predict and run, and show the error of each prediction.",
        ),
        "bench": (
            "ringlab.commands.measuring.bench:command",
            "Measure collectives in the table of nccl-tests, beside their prediction. ^C keeps what is done.",
        ),
        "virtual": (
            "ringlab.commands.virtual:command",
            "Run a program of torch.distributed as it stands on virtual ranks: how long, who waits for whom, what "
            "hangs.",
        ),
        "record": (
            "ringlab.commands.measuring.record:command",
            "Record what a program of torch.distributed calls and computes on real ranks; also under torchrun.",
        ),
        "calibrate": (
            "ringlab.commands.measuring.calibrate:command",
            "Measure this machine's messages, reductions and training phases, and keep them; or keep what you "
            "measured.",
        ),
        "doctor": (
            "ringlab.commands.doctor:command",
            "Look at what this machine can run, and what is missing.",
        ),
        "slurm": (
            "ringlab.jobs.slurm:slurm",
            "Write a batch file of Slurm that runs the scenario under torchrun; `sbatch FILE` submits it.",
        ),
        "k8s": (
            "ringlab.jobs.kubernetes:k8s",
            "Write a Job of Kubernetes that runs the scenario under torchrun; `kubectl apply -f FILE` starts it.",
        ),
    },
    "See": {
        "animate": (
            "ringlab.commands.draw:animate_command",
            "Show the messages of a collective: in a player, moving over the topology, or ranks against time.",
        ),
        "plot": (
            "ringlab.commands.draw:plot_command",
            "Draw a still picture of a scenario's prediction, or the critical path of a Trace.",
        ),
    },
    "Judge": {
        "check": (
            "ringlab.commands.check:command",
            "Prove an algorithm right at many world sizes, or say what is wrong; its cost stands beside the least "
            "possible.",
        ),
        "diagnose": (
            "ringlab.commands.diagnose:command",
            "Say whether a run is as fast as it should be, from its logs and traces; if not, why, and what to do.",
        ),
        "describe": (
            "ringlab.commands.describe:command",
            "Describe the machine that logs and topologies tell of, as a scenario that other commands take.",
        ),
        "accuracy": (
            "ringlab.commands.accuracy:command",
            "Predict published NCCL tables, trainings (--training, --meshes) or clusters emulated here (--here).",
        ),
    },
    "Learn": {
        "learn": (
            "ringlab.commands.learn:command",
            "Learn collectives and distributed training in eleven lessons; without a number list them.",
        ),
        "init": (
            "ringlab.commands.init:command",
            "Write an example or a shipped scenario to change; without a name list them.",
        ),
        "list": (
            "ringlab.commands.catalogue:list_command",
            "List the algorithms, presets, models and scenarios that there are.",
        ),
        "hardware": (
            "ringlab.commands.catalogue:hardware_command",
            "List the hardware catalogue, or show a part with its sources; -o FILE.png draws a machine's topology.",
        ),
    },
}
COMMANDS = {name: command for commands in PURPOSES.values() for name, command in commands.items()}


class CommandList(TyperGroup):
    """All commands, listed by their purposes."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; typer's own does the same by Markdown, whose import takes twice as long as the rest."""
        console = Console()
        console.print(f"\n[bold]Usage:[/] {ctx.command_path} COMMAND ...\n\n{self.help}\n")
        options = {" ".join(option.opts): getattr(option, "help", "") for option in self.get_params(ctx)}
        abouts = {purpose: {name: about for name, (_, about) in them.items()} for purpose, them in PURPOSES.items()}
        for title, rows in {**abouts, "Options": options}.items():
            table = Table(box=None, show_header=False, padding=(0, 1))
            table.add_column(style="bold cyan", no_wrap=True, min_width=max(map(len, COMMANDS)))
            for row in rows.items():
                table.add_row(*row)
            console.print(Panel(table, title=title, title_align="left", border_style="dim"))
        console.print("`ringlab COMMAND --help` says what a command takes.", markup=False, highlight=False)


app = typer.Typer(
    cls=CommandList,
    help="Predict, run, compare and see how a training job scales.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class UnloadedCommand(TyperCommand):
    """A command whose module is loaded when it is called, so that ``--help`` does not wait for what commands need."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return a context of the command itself."""
        return load_command(str(self.name)).make_context(info_name, args, parent, **extra)


@cache
def load_command(name: str) -> TyperCommand:
    """Return a command with its options."""
    module, _, function = COMMANDS[name][0].partition(":")
    alone = typer.Typer(add_completion=False)
    found = import_module(module)
    alone.command(name, **getattr(found, "SETTINGS", {}))(getattr(found, function))
    command = typer.main.get_command(alone)
    assert isinstance(command, TyperCommand)
    return command


for _name, (_, _about) in COMMANDS.items():
    app.command(_name, cls=UnloadedCommand, help=_about)(lambda: None)


def main() -> None:
    """Run the command line and exit: 0 done, 1 the run or check failed, 2 the input was refused, 130 interrupted."""
    os.environ["MPLBACKEND"] = "agg"  # a command draws into files; one for windows may not even be there
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it says where it cannot cache its fonts, and draws
    with exit_on_signals():
        exit_with_a_line(app)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"ringlab {ringlab.__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Predict, run, compare and see how a training job scales."""
    context.with_resource(inputs_protected())
