"""The command ``ringlab plot``."""

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


def plot(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="step|scaling|path|cluster",
            help="A training step by phase with what-ifs; samples a second against ranks; the critical path; the "
            "cluster.",
        ),
    ],
    source: Annotated[
        str, typer.Argument(metavar="SCENARIO|TRACE", help="A scenario; of a path also a .trace.json file.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help=".png, .svg or .pdf.")],
    algorithm: Annotated[
        str | None, typer.Option(help="Whose critical path; the last of the scenario's unless said.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="How large a buffer; the scenario's largest unless said.")] = None,
    calibration: CalibrationOpt = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Draw a still picture of a scenario's prediction, or the critical path of a Trace."""
    from ringlab.answers.plots import check_kind
    from ringlab.one_call import plot

    check_kind(kind, output)
    check_outputs(json_to, output, reads=calibration)
    loaded = load_scenario(source, *set_keys) if set_keys else source
    answer = plot(kind, loaded, output, algorithm, size, calibration=calibration, progress=TerminalProgress())
    write_answer(answer, json_to, _show)


def _show(answer: "Picture", console: Console) -> None:
    console.print(f"{answer.title}: {answer.file}", soft_wrap=True)
