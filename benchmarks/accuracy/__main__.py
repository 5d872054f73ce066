"""``python -m benchmarks.accuracy``: predictions next to measured times of NCCL, trainings and emulated clusters."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from benchmarks.accuracy.here import accuracy_here
from benchmarks.accuracy.mesh_answer import mesh_accuracy
from benchmarks.accuracy.nccl_answer import accuracy
from benchmarks.accuracy.training_answer import accuracy_training
from collectives.errors import InputError
from ringlab.shared.answer import Answer
from ringlab.shared.failures import exit_with_a_line
from ringlab.shared.options import ExplainOpt, JsonOpt, drawing, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress, draw_to
from scenarios import shipped


@dataclass(frozen=True)
class AccuracyOptions:
    """The predictions to evaluate."""

    data: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help=(
                "Directory with tables or series and their descriptions. Default: the published data "
                "that Ringlab ships."
            ),
        ),
    ] = None
    only_put_aside: Annotated[bool, Option("--put-aside", help="Evaluate only on systems held out from all fits.")] = (
        False
    )
    calibrate: Annotated[
        int,
        Option(
            min=0,
            max=100,
            metavar="N",
            help="Show how much N measured rows would improve the predictions (0 to 7 for NCCL).",
        ),
    ] = 0
    here: Annotated[
        bool,
        Option(
            "--here",
            help=("Emulate the scenarios in emulated/ on this machine and compare with predictions (10 minutes)."),
        ),
    ] = False
    only: Annotated[
        list[str] | None,
        Option(metavar="SCENARIO", help="With --here: emulate only this scenario, by name or file. Repeatable."),
    ] = None
    training: Annotated[
        bool, Option("--training", help="Evaluate predictions of published training runs on many GPUs.")
    ] = False
    meshes: Annotated[
        bool,
        Option("--meshes", help="Evaluate predictions of published language-model training runs on device meshes."),
    ] = False
    leave_one_out: Annotated[
        bool, Option("--leave-one-out", help="With --meshes: leave-one-source-out cross-validation (takes minutes).")
    ] = False


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@with_groups
def main(
    *,
    asked: AccuracyOptions,
    plot: Annotated[
        Path | None, drawing("a still picture", "Plot predicted against measured times, as .png, .svg or .pdf.")
    ] = None,
    explain: ExplainOpt = False,
    json_to: JsonOpt = None,
) -> None:
    """Evaluate predictions of NCCL tables, training runs (--training, --meshes) or emulated clusters (--here)."""
    check_outputs(json_to, plot)
    answer = judge(asked, TerminalProgress())
    deliver(answer, json_to, draw_to(answer, plot, json_to), explain=explain)


def judge(asked: AccuracyOptions, progress: Progress) -> Answer:
    """Return the answer to the options. Raise InputError for options that cannot be combined."""
    if asked.leave_one_out and not asked.meshes:
        raise InputError("--leave-one-out requires --meshes")
    if asked.meshes:
        if asked.here or asked.only or asked.training or asked.only_put_aside:
            raise InputError("--meshes can only be combined with --data, --leave-one-out, --calibrate and --plot")
        return mesh_accuracy(
            asked.data, leave_one_out=asked.leave_one_out, calibrate=asked.calibrate, progress=progress
        )
    if asked.training:
        if asked.here or asked.only or asked.calibrate:
            raise InputError("--training can only be combined with --data, --put-aside and --plot")
        return accuracy_training(asked.data, only_put_aside=asked.only_put_aside, progress=progress)
    if asked.here:
        if asked.data is not None or asked.only_put_aside or asked.calibrate:
            raise InputError("--here can only be combined with --only; the other options apply to published tables")
        return accuracy_here([*map(name_of_emulated, asked.only or ())], progress=progress)
    if asked.only:
        raise InputError("--only requires --here")
    return accuracy(asked.data, only_put_aside=asked.only_put_aside, calibrate=asked.calibrate, progress=progress)


def name_of_emulated(name: str) -> str:
    """Return the name of a scenario, with ``emulated/`` where a shipped one there has that name.

    >>> name_of_emulated("star8"), name_of_emulated("emulated/star8"), name_of_emulated("my.toml")
    ('emulated/star8', 'emulated/star8', 'my.toml')
    """
    return f"emulated/{name}" if f"emulated/{name}" in shipped() else name


if __name__ == "__main__":
    exit_with_a_line(app)
