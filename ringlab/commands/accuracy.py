"""The command ``ringlab accuracy``."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringlab.shared.console import make_console
from ringlab.shared.options import ExplainOpt, JsonOpt
from ringlab.shared.output import check_outputs, write_answer
from ringlab.shared.progress import TerminalProgress

if TYPE_CHECKING:
    from ringlab.answers.accuracy import AccuracyAnswer
    from ringlab.answers.accuracy_here import AccuracyHere
    from ringlab.answers.accuracy_training import TrainingAccuracy


def accuracy(
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Tables or series and what describes them; else the project's own."),
    ] = None,
    only_put_aside: Annotated[
        bool, typer.Option("--put-aside", help="Judge the systems that no fit ever saw, and only those.")
    ] = False,
    calibrate: Annotated[
        int, typer.Option(min=0, max=6, metavar="N", help="Show what N measured rows gain, and which to measure.")
    ] = 0,
    here: Annotated[
        bool, typer.Option("--here", help="Instead, emulate the scenarios under emulated/ and compare (ten minutes).")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="SCENARIO", help="With --here: this one under emulated/, or a file; may be repeated."),
    ] = None,
    training: Annotated[
        bool, typer.Option("--training", help="Instead, predict published trainings on many GPUs.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw predicted against measured: .png, .svg or .pdf.")
    ] = None,
    explain: ExplainOpt = False,
    json_to: JsonOpt = None,
) -> None:
    """Predict published NCCL tables, trainings (--training) or clusters emulated here (--here); show the errors."""
    from collectives.errors import InputError
    from viz import check_file

    if plot is not None:
        check_file(plot, "a picture of accuracy")
    check_outputs(json_to, plot)
    if training:
        if here or only or calibrate:
            raise InputError("--training is about published trainings; beside it go --data, --put-aside and --plot")
        _show_training(data, only_put_aside, plot, json_to, explain)
        return
    if here:
        if data is not None or only_put_aside or calibrate:
            raise InputError("--here emulates clusters on this machine; the other options are about NCCL's tables")
        _show_here([name_of_emulated(name) for name in only or ()], plot, json_to, explain)
        return
    if only:
        raise InputError("--only says which clusters --here emulates; give both")
    _show_nccl(data, only_put_aside, calibrate, plot, json_to, explain)


def _show_nccl(
    data: Path | None,
    only_put_aside: bool,
    calibrate: int,
    plot: Path | None,
    json_to: str | None,
    explain: bool,
) -> None:
    from ringlab.answers import accuracy as accuracy_answer
    from ringlab.terminal.accuracy_tables import show_accuracy

    answer = accuracy_answer.accuracy(
        data,
        only_put_aside=only_put_aside,
        calibrate=calibrate,
        progress=TerminalProgress(),
    )
    show = partial(show_accuracy, explain=explain)
    write_answer(answer, json_to, show, *_drawing(answer, plot, json_to))


def _show_training(
    data: Path | None, only_put_aside: bool, plot: Path | None, json_to: str | None, explain: bool
) -> None:
    from ringlab.answers.accuracy_training import accuracy_training
    from ringlab.terminal.accuracy_training_tables import show_accuracy_training

    answer = accuracy_training(data, only_put_aside=only_put_aside, progress=TerminalProgress())
    show = partial(show_accuracy_training, explain=explain)
    write_answer(answer, json_to, show, *_drawing(answer, plot, json_to))


def name_of_emulated(name: str) -> str:
    """Return a scenario by what says which: a file, a bundled one, or one under ``emulated/`` by its own name.

    >>> name_of_emulated("star8"), name_of_emulated("emulated/star8"), name_of_emulated("my.toml")
    ('emulated/star8', 'emulated/star8', 'my.toml')
    """
    from scenarios import shipped

    return f"emulated/{name}" if f"emulated/{name}" in shipped() else name


def _show_here(names: list[str], plot: Path | None, json_to: str | None, explain: bool) -> None:
    from ringlab.answers.accuracy_here import accuracy_here
    from ringlab.terminal.accuracy_here_tables import show_accuracy_here

    answer = accuracy_here(names, progress=TerminalProgress())
    show = partial(show_accuracy_here, explain=explain)
    write_answer(answer, json_to, show, *_drawing(answer, plot, json_to))


def _drawing(
    answer: "AccuracyAnswer | TrainingAccuracy | AccuracyHere", plot: Path | None, json_to: str | None
) -> list[Callable[[], None]]:
    """Return what draws an answer, where that is asked for, and names the picture once it is there."""

    def draw() -> None:
        from ringlab.shared.progress import computing

        assert plot is not None
        with computing(TerminalProgress(), f"drawing {plot}"):
            answer.draw(plot)
        make_console(quiet=json_to == "-").print(f"The picture: {plot}", soft_wrap=True)

    return [draw] if plot is not None else []
