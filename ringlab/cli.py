"""The command line. The module of a command is imported when the command is called."""

import logging
import os
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

import ringlab
from collectives.errors import InputError, InputWarning
from collectives.input_files import inputs_protected
from collectives.removed import COMMANDS as REMOVED_COMMANDS
from collectives.removed import describe_removed
from ringlab.shared.failures import exit_with_a_line
from ringlab.shared.signals import exit_on_signals

PURPOSES = {  # commands by purpose; each name maps to module:function
    "Predict": {
        "predict": "ringlab.commands.predicting.predict:command",
        "explain": "ringlab.commands.predicting.explain:command",
        "search": "ringlab.commands.predicting.search:search_meshes",
        "plan": "ringlab.commands.predicting.plan:command",
        "profile": "ringlab.commands.measuring.profile:command",
        "replay": "ringlab.commands.predicting.replay:command",
    },
    "Run": {
        "run": "ringlab.commands.measuring.run:command",
        "compare": "ringlab.commands.measuring.compare:command",
        "bench": "ringlab.commands.measuring.bench:command",
        "virtual": "ringlab.commands.virtual:command",
        "record": "ringlab.commands.measuring.record:command",
        "calibrate": "ringlab.commands.measuring.calibrate:command",
        "doctor": "ringlab.commands.doctor:command",
        "slurm": "ringlab.commands.slurm:slurm",
    },
    "Visualize": {
        "animate": "ringlab.commands.draw:animate_command",
        "plot": "ringlab.commands.draw:plot_command",
    },
    "Check": {
        "check": "ringlab.commands.check:command",
        "describe": "ringlab.commands.describe:command",
    },
    "Learn": {
        "learn": "ringlab.commands.learn:command",
        "init": "ringlab.commands.init:command",
        "list": "ringlab.commands.catalogue:list_command",
    },
}
COMMANDS = {name: command for commands in PURPOSES.values() for name, command in commands.items()}


def describe_command(name: str) -> str:
    """Return the first line of a command's docstring, read from the source file, because importing is slow."""
    module, _, function = COMMANDS[name].partition(":")
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    return text.partition(f"\ndef {function}(")[2].partition('"""')[2].partition("\n")[0].removesuffix('"""')


class CommandList(TyperGroup):
    """The group of all commands, whose ``--help`` lists them by purpose."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name. Raise InputError if the command was removed."""
        if removed := describe_removed(REMOVED_COMMANDS, args[0]):
            raise InputError(removed)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help without typer's Markdown renderer, which is slow to import."""
        console = Console()
        console.print(f"\n[bold]Usage:[/] {ctx.command_path} COMMAND ...\n\n{self.help}\n")
        options = {" ".join(option.opts): getattr(option, "help", "") for option in self.get_params(ctx)}
        abouts = {purpose: {name: describe_command(name) for name in them} for purpose, them in PURPOSES.items()}
        for title, rows in {**abouts, "Options": options}.items():
            table = Table(box=None, show_header=False, padding=(0, 1))
            table.add_column(style="bold cyan", no_wrap=True, min_width=max(map(len, COMMANDS)))
            for row in rows.items():
                table.add_row(*row)
            console.print(Panel(table, title=title, title_align="left", border_style="dim"))
        console.print("Run `ringlab COMMAND --help` for the options of a command.", markup=False, highlight=False)


app = typer.Typer(
    cls=CommandList,
    help="Predict, run and visualize how distributed training scales.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class UnloadedCommand(TyperCommand):
    """A command whose module is imported when the command is called, so that ``--help`` is fast."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return load_command(str(self.name)).make_context(info_name, args, parent, **extra)

    def get_short_help_str(self, limit: int = 45) -> str:
        return describe_command(str(self.name))


@cache
def load_command(name: str) -> TyperCommand:
    """Import a command and return it with its options."""
    module, _, function = COMMANDS[name].partition(":")
    alone = typer.Typer(add_completion=False)
    loaded = import_module(module)
    callback = getattr(loaded, function)
    paragraphs = cleandoc(callback.__doc__ or "").split("\n\n")
    about = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)  # typer keeps line ends
    alone.command(name, help=about, **getattr(loaded, "SETTINGS", {}))(callback)
    command = typer.main.get_command(alone)
    assert isinstance(command, TyperCommand)
    return command


for _name in COMMANDS:
    app.command(_name, cls=UnloadedCommand)(lambda: None)


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print a warning about the user's input as one line, and other warnings as Python does."""
    text = f"ringlab: {message}\n"
    if category is not InputWarning:
        text = warnings.formatwarning(message, category, filename, lineno, line)
    typer.echo(text, nl=False, err=True, file=file)


def main() -> None:
    """Run the command line. Exit status: 0 success, 1 failed run or check, 2 invalid input, 130 interrupted."""
    os.environ["MPLBACKEND"] = "agg"  # commands only draw into files; other backends may require a display
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # hides warnings about its font cache
    warnings.showwarning = show_warning
    warnings.simplefilter("default", InputWarning)  # never an error, also with PYTHONWARNINGS=error
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
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Predict, run and visualize how distributed training scales."""
    context.with_resource(inputs_protected())
