"""The table of ``winners``."""

from itertools import groupby
from math import isfinite

from rich.console import Console

from collectives.units import format_size
from ringlab.answers.winner_maps import WinnersAnswer
from ringlab.table import NOTHING, Row, make_table
from simcomm.selection import Choice


def show_winners(answer: WinnersAnswer, console: Console) -> None:
    """Print a row for each stretch of sizes that one algorithm wins; of the next best the closest."""
    found, rows = answer.map, []
    for world_size, row in zip(found.world_sizes, found.choices, strict=True):
        cells = zip(found.sizes, row, strict=True)
        first = str(world_size)
        for name, group in groupby(cells, key=lambda cell: cell[1].algorithm.name):
            rows.append([first, *_stretch(name, list(group))])
            first = ""
    headings = ["ranks", "sizes", "fastest", "closest to it", "times as fast"]
    console.print(make_table(f"{found.collective} on {found.cluster}", headings, rows, words=4))


def _stretch(name: str, cells: list[tuple[int, Choice]]) -> Row:
    sizes = " to ".join(dict.fromkeys(format_size(nbytes) for nbytes in (cells[0][0], cells[-1][0])))
    gains = [choice.gain for _, choice in cells if isfinite(choice.gain)]
    shown = " to ".join(dict.fromkeys(f"{gain:.2f}" for gain in (min(gains), max(gains)))) if gains else NOTHING
    closest = min((choice for _, choice in cells), key=lambda choice: choice.gain).next_best
    return [sizes, name, closest.algorithm.name if closest else NOTHING, shown]
