"""The command ``ringlab hardware``."""

from pathlib import Path
from typing import Annotated

import typer

from ringlab.terminal.options import JsonOpt
from ringlab.terminal.output import give


def hardware(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A machine, GPU, link or NIC.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Draw a machine.")] = None,
    nodes: Annotated[int, typer.Option(min=1, metavar="N", help="So many of it, with their network.")] = 1,
    json_to: JsonOpt = None,
) -> None:
    """List the hardware catalogue, or show a part with its sources; -o FILE.png draws a machine's topology."""
    from ringlab.answers.hardware import look_up

    found, show = look_up(name, output, nodes)
    give(found, json_to, lambda console: show(found, console))
