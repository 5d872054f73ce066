"""The command ``ringlab hardware``."""

from pathlib import Path
from typing import Annotated

import typer

from ringlab.shared.options import JsonOpt
from ringlab.shared.output import check_outputs, write_answer


def hardware(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A machine, GPU, link or NIC.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Draw a machine.")] = None,
    nodes: Annotated[int, typer.Option(min=1, metavar="N", help="So many of it, with their network.")] = 1,
    json_to: JsonOpt = None,
) -> None:
    """List the hardware catalogue, or show a part with its sources; -o FILE.png draws a machine's topology."""
    from collectives.errors import InputError
    from ringlab.answers import hardware_parts
    from ringlab.terminal.hardware_tables import show_hardware
    from viz import check_file

    if output is not None:
        check_file(output, "a topology")
    check_outputs(json_to, output)
    if output is None:
        answer = hardware_parts.hardware(name)
    elif name is None:
        raise InputError(f"-o {output}: name the machine to draw; `ringlab hardware` lists them")
    else:
        answer = hardware_parts.hardware_part(name).draw(output, nodes)
    write_answer(answer, json_to, show_hardware)
