"""Compare predictions with measured times, as ``python -m benchmarks.accuracy``."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from benchmarks.accuracy.here import accuracy_here
from benchmarks.accuracy.meshes import mesh_accuracy
from benchmarks.accuracy.nccl_answer import accuracy
from benchmarks.accuracy.training import accuracy_training
from collectives.errors import InputError
from ringlab.shared.answer import Answer
from ringlab.shared.failures import exit_with_a_line
from ringlab.shared.options import JsonOpt, drawing
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import TerminalProgress, draw_to
from scenarios import shipped

PUBLISHED = "Directory with tables or series and their descriptions. Default: the published data that Ringlab ships."
GAIN = "Show how much N measured rows would improve the predictions (0 to 7 for NCCL)."
EMULATE = "Emulate the scenarios in emulated/ on this machine and compare with predictions (10 minutes)."
ONLY = "With --here: emulate only this scenario, by name or file. Repeatable."
MESHES = "Evaluate predictions of published language-model training runs on device meshes."
LEFT_OUT = "With --meshes: leave-one-source-out cross-validation (takes minutes)."

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    *,
    data: Annotated[Path | None, Option(metavar="DIR", help=PUBLISHED)] = None,
    only_held_out: Annotated[bool, Option("--held-out", help="Evaluate only on held-out systems.")] = False,
    calibrate: Annotated[int, Option(min=0, max=100, metavar="N", help=GAIN)] = 0,
    here: Annotated[bool, Option("--here", help=EMULATE)] = False,
    only: Annotated[list[str] | None, Option(metavar="SCENARIO", help=ONLY)] = None,
    training: Annotated[bool, Option("--training", help="Evaluate predictions of published training runs.")] = False,
    meshes: Annotated[bool, Option("--meshes", help=MESHES)] = False,
    leave_one_out: Annotated[bool, Option("--leave-one-out", help=LEFT_OUT)] = False,
    plot: Annotated[
        Path | None, drawing("a plot", "Plot predicted against measured times, as .png, .svg or .pdf.")
    ] = None,
    json_to: JsonOpt = None,
) -> None:
    """Evaluate predictions of NCCL tables, training runs (--training, --meshes) or emulated clusters (--here)."""
    check_outputs(json_to, plot)
    progress = TerminalProgress()
    if leave_one_out and not meshes:
        raise InputError("--leave-one-out requires --meshes")
    if meshes and (here or only or training or only_held_out):
        raise InputError("--meshes can only be combined with --data, --leave-one-out, --calibrate and --plot")
    if training and (here or only or calibrate):
        raise InputError("--training can only be combined with --data, --held-out and --plot")
    if here and (data is not None or only_held_out or calibrate):
        raise InputError("--here can only be combined with --only; the other options apply to published tables")
    if only and not here:
        raise InputError("--only requires --here")
    answer: Answer
    if meshes:
        answer = mesh_accuracy(data, leave_one_out=leave_one_out, calibrate=calibrate, progress=progress)
    elif training:
        answer = accuracy_training(data, only_held_out=only_held_out, progress=progress)
    elif here:
        answer = accuracy_here([*map(name_of_emulated, only or ())], progress=progress)
    else:
        answer = accuracy(data, only_held_out=only_held_out, calibrate=calibrate, progress=progress)
    deliver(answer, json_to, draw_to(answer, plot, json_to))


def name_of_emulated(name: str) -> str:
    """Return the scenario's name, with the prefix ``emulated/`` if a shipped scenario in that folder has the name.

    >>> name_of_emulated("star8"), name_of_emulated("emulated/star8"), name_of_emulated("my.toml")
    ('emulated/star8', 'emulated/star8', 'my.toml')
    """
    return f"emulated/{name}" if f"emulated/{name}" in shipped() else name


if __name__ == "__main__":
    exit_with_a_line(app)
