"""The command ``ringlab winners``."""

from pathlib import Path
from typing import Annotated

import typer

from ringlab.session import Session
from ringlab.shared.console import make_console
from ringlab.shared.loading import load_scenario
from ringlab.shared.options import CalibrationOpt, JsonOpt, SetOpt
from ringlab.shared.output import check_outputs, write_answer
from ringlab.shared.progress import TerminalProgress


def winners(
    scenario: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO]", help="Its cluster and collective; else a star of --hosts.")
    ] = None,
    collective: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Else the scenario's, or all_reduce."),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(metavar="LIST", help="Such as 2-16,64; else doubling, with one between.")
    ] = None,
    begin: Annotated[str, typer.Option("-b", "--minbytes", metavar="SIZE", help="Smallest size: 256, 1K.")] = "256",
    end: Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE", help="Largest size.")] = "256M",
    factor: Annotated[float, typer.Option("-f", "--stepfactor", help="From one size to the next.")] = 2.0,
    algorithm: Annotated[
        list[str] | None, typer.Option(metavar="NAME|FILE.py:NAME", help="Can be repeated; else all of the library.")
    ] = None,
    hosts: Annotated[int, typer.Option(min=1, metavar="N", help="Of the star, without a scenario.")] = 64,
    bandwidth: Annotated[str, typer.Option(metavar="RATE", help="Of each of its links.")] = "100 Gbit/s",
    latency: Annotated[str, typer.Option(metavar="TIME", help="Of each of its links.")] = "2 us",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Draw the map: .png, .svg or .pdf.")
    ] = None,
    calibration: CalibrationOpt = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Show where each algorithm wins by the model: the size of the buffer against the number of ranks."""
    from collectives.errors import InputError
    from collectives.quoting import quote
    from ringlab.answers import winner_maps
    from ringlab.terminal.winners_table import show_winners
    from simcomm import star
    from simcomm.cluster.cluster import MOST_RANKS
    from viz import check_file

    if output is not None:
        check_file(output, "a map of winners")
    sizes, algorithms, progress = (begin, end, factor), algorithm or (), TerminalProgress()
    if scenario is not None:
        loaded = load_scenario(scenario, *(set_keys or ()))
        check_outputs(json_to, output, reads=calibration)
        known = Session(calibration=calibration).find_calibration(loaded)
        asked, dtype = (loaded.collective.name, loaded.collective.dtype) if loaded.collective else (None, "float32")
        answer = winner_maps.winners(
            collective or asked or "all_reduce",
            loaded.cluster,
            ranks,
            sizes,
            algorithms,
            dtype=dtype,
            calibration=known,
            progress=progress,
        )
    elif set_keys:
        raise InputError("--set changes a scenario, and none is given")
    else:
        check_outputs(json_to, output)
        if hosts > MOST_RANKS:
            raise InputError(f"--hosts {quote(hosts)}: {MOST_RANKS} hosts at most")
        cluster = star(hosts, bandwidth, latency)
        answer = winner_maps.winners(collective or "all_reduce", cluster, ranks, sizes, algorithms, progress=progress)

    def draw() -> None:
        if output is not None:
            answer.draw(output)
            make_console(quiet=json_to == "-").print(f"The picture: {output}", soft_wrap=True)

    write_answer(answer, json_to, show_winners, draw)
