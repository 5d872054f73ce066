"""The command ``ringlab animate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ringlab.shared.options import CalibrationOpt, JsonOpt, SetOpt
from ringlab.shared.output import check_outputs, write_answer
from ringlab.shared.progress import TerminalProgress
from ringlab.terminal.loading import load_scenario

if TYPE_CHECKING:
    from ringlab.answers.pictures import Picture


def animate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO|TRACE",
            help="A scenario, a .trace.json file, or what torch's profiler wrote: FILE.json or FOLDER/.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help=".html: a player of all algorithms; .gif, .mp4: messages moving; .png, .svg, .pdf: ranks against "
            "time; .perfetto.json: for Perfetto.",
        ),
    ],
    algorithm: Annotated[
        str | None, typer.Option(help="Which of the scenario's algorithms; the last unless said, all in a player.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="How large a buffer; the scenario's largest unless said.")] = None,
    calibration: CalibrationOpt = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Show the messages of a collective: in a player, moving over the topology, or ranks against time.

    A wrong program is drawn up to where it goes wrong.
    """
    from ringlab.one_call import animate, is_record
    from viz import check_file

    check_file(output, "a picture of messages")
    check_outputs(json_to, output, reads=calibration)
    if is_record(source):
        answer = animate(source, output, progress=TerminalProgress())
    else:
        loaded = load_scenario(source, *(set_keys or ()))
        answer = loaded.animate(output, algorithm, size, calibration=calibration, progress=TerminalProgress())
    write_answer(answer, json_to, _show)


def _show(answer: "Picture", console: Console) -> None:
    if answer.problem is not None:
        console.print(f"WRONG  {answer.problem}", soft_wrap=True)
    console.print(f"{answer.title}: {answer.file}", soft_wrap=True)
