"""The command ``ringlab animate``."""

from pathlib import Path
from typing import Annotated

import typer

from ringlab.terminal.options import CalibrationOpt, JsonOpt, SetOpt
from ringlab.terminal.output import give
from ringlab.terminal.progress import Progress


def animate(
    source: Annotated[str, typer.Argument(metavar="SCENARIO|TRACE", help="A scenario, or a .trace.json file.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help=".gif: messages moving; .png: ranks against time.")
    ],
    algorithm: Annotated[
        str | None, typer.Option(help="Which of the scenario's algorithms; the last unless said.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="How large a buffer; the scenario's largest unless said.")] = None,
    calibration: CalibrationOpt = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Draw the messages of a collective: moving over the topology, or ranks against time."""
    import viz
    from ringlab.answers.pictured_trace import to_draw

    shown = to_draw(source, algorithm, size, calibration, set_keys or (), Progress().console)
    viz.draw(shown, output)
    drawn = {"schema_version": 1, "kind": "picture", "title": shown.title, "file": str(output)}
    give(drawn, json_to, lambda console: console.print(f"{shown.title}: {output}", markup=False, soft_wrap=True))
