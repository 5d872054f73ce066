"""The command ``ringlab accuracy``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ringlab.terminal.options import JsonOpt
from ringlab.terminal.output import check_outputs, write_answer
from ringlab.terminal.progress import TerminalProgress


def accuracy(
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Tables <slug>.csv with systems_described.toml; else the project's own."),
    ] = None,
    only_put_aside: Annotated[
        bool, typer.Option("--put-aside", help="Judge the systems that no fit ever saw, and only those.")
    ] = False,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Predict each system by parameters fitted to the others (minutes).")
    ] = False,
    calibrate: Annotated[
        int, typer.Option(min=0, max=6, metavar="N", help="Show what N measured rows gain, and which to measure.")
    ] = 0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw predicted against measured: .png, .svg or .pdf.")
    ] = None,
    json_to: JsonOpt = None,
) -> None:
    """Predict published NCCL tables from descriptions, and show the errors beside those of simpler predictions."""
    from ringlab.answers import accuracy as accuracy_answer
    from ringlab.terminal.accuracy_tables import show_accuracy
    from viz import check_file

    if plot is not None:
        check_file(plot, "a picture of accuracy")
    check_outputs(json_to, plot)
    answer = accuracy_answer.accuracy(
        data,
        only_put_aside=only_put_aside,
        leave_one_out=leave_one_out,
        calibrate=calibrate,
        progress=TerminalProgress(),
    )
    if plot is not None:
        answer.draw(plot)
        answer = replace(answer, file=str(plot))
    write_answer(answer, json_to, show_accuracy)
