"""Where each algorithm wins on a cluster: the question, the answer as JSON and table, and the picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any

from rich.console import Console

import viz
from collectives.catalogue import find_algorithm
from collectives.errors import InputError
from collectives.records.calibration import Calibration
from collectives.records.environment import environment
from collectives.spec import find_spec
from collectives.units import format_size
from ringlab.answers.proofs import parse_numbers
from ringlab.answers.sizes import growing
from ringlab.terminal.tables import NOTHING, table
from simcomm.cluster.cluster import Cluster
from simcomm.selection import Choice, WinnerMap, winner_map

MOST_CELLS = 5000
MOST_RANKS = 65_536


@dataclass(frozen=True)
class Question:
    """A collective on the first hosts of a cluster: how many of them, which sizes, and which algorithms to choose from,
    the library's unless some are named."""

    collective: str
    cluster: Cluster
    sizes: tuple[int, ...]  # bytes
    world_sizes: tuple[int, ...]
    algorithms: tuple[str, ...] = ()
    dtype: str = "float32"


def question(
    collective: str,
    cluster: Cluster,
    ranks: str | None,
    sizes: tuple[str, str, float],
    algorithms: Sequence[str] = (),
    dtype: str = "float32",
) -> Question:
    """From the options of the command line; ``sizes`` are the first, the last and the factor. Raises InputError."""
    find_spec(collective)
    usual = [cluster.world_size] if cluster.is_here else doublings(cluster.world_size)
    world_sizes = usual if ranks is None else parse_numbers(ranks, "--ranks", MOST_RANKS)
    if cluster.is_here and world_sizes != usual:
        raise InputError(f"--ranks {ranks}: this machine is calibrated for all of its {cluster.world_size} ranks alone")
    if world_sizes[-1] > cluster.world_size:
        raise InputError(f"--ranks {ranks}: {world_sizes[-1]} do not fit: {cluster.title} holds {cluster.world_size}")
    found = growing(*sizes)
    if len(found) * len(world_sizes) > MOST_CELLS:
        raise InputError(f"{len(found)} sizes for {len(world_sizes)} numbers of ranks: {MOST_CELLS} cells at most")
    return Question(collective, cluster, tuple(found), tuple(world_sizes), tuple(algorithms), dtype)


def doublings(most: int) -> list[int]:
    """Powers of two, one number halfway between each two of them, and the most: 2, 3, 4, 6, 8, ..."""
    powers = [1 << bit for bit in range(1, most.bit_length())]
    return sorted({p for power in powers for p in (power, power * 3 // 2) if p <= most} | {most})


def winners(asked: Question, calibration: Calibration | None) -> WinnerMap:
    """The choice in every cell. Raises InputError."""
    among = [find_algorithm(name, asked.collective) for name in asked.algorithms] or None
    return winner_map(
        asked.collective, asked.cluster, asked.sizes, asked.world_sizes,
        dtype=asked.dtype, among=among, calibration=calibration,
    )  # fmt: skip


def as_answer(found: WinnerMap, asked: Question) -> dict[str, Any]:
    """For JSON: an entry for each cell."""
    return {
        "schema_version": 1,
        "kind": "winners",
        "environment": environment(),
        "collective": found.collective,
        "cluster": found.cluster,
        "dtype": asked.dtype,
        "cells": [
            _entry(world_size, nbytes, choice)
            for world_size, row in zip(found.world_sizes, found.choices, strict=True)
            for nbytes, choice in zip(found.sizes, row, strict=True)
        ],
    }


def _entry(world_size: int, nbytes: int, choice: Choice) -> dict[str, Any]:
    second = choice.next_best
    return {
        "world_size": world_size,
        "bytes": nbytes,
        "algorithm": choice.algorithm.label,
        "time_s": choice.seconds,
        "next_best": second.algorithm.label if second else None,
        "next_best_time_s": second.seconds if second else None,
    }


def show_winners(found: WinnerMap, console: Console) -> None:
    """A row for each stretch of sizes that one algorithm wins; of the next best the closest."""
    rows = []
    for world_size, row in zip(found.world_sizes, found.choices, strict=True):
        cells = zip(found.sizes, row, strict=True)
        first = str(world_size)
        for name, group in groupby(cells, key=lambda cell: cell[1].algorithm.name):
            rows.append([first, *_stretch(name, list(group))])
            first = ""
    headings = ["ranks", "sizes", "fastest", "closest to it", "times as fast"]
    console.print(table(f"{found.collective} on {found.cluster}", headings, rows, words=4))


def _stretch(name: str, cells: list[tuple[int, Choice]]) -> list[str]:
    sizes = " to ".join(dict.fromkeys(format_size(nbytes) for nbytes in (cells[0][0], cells[-1][0])))
    gains = [choice.gain for _, choice in cells if isfinite(choice.gain)]
    gained = " to ".join(dict.fromkeys(f"{gain:.2f}" for gain in (min(gains), max(gains)))) if gains else NOTHING
    closest = min((choice for _, choice in cells), key=lambda choice: choice.gain).next_best
    return [sizes, name, closest.algorithm.name if closest else NOTHING, gained]


def draw(found: WinnerMap, path: Path) -> None:
    """Write the picture. Raises InputError for a suffix that is none of a picture."""
    names = [[choice.algorithm.name for choice in row] for row in found.choices]
    gains = [[choice.gain for choice in row] for row in found.choices]
    title = f"{found.collective} on {found.cluster}"
    viz.draw_winners(viz.Winners(title, found.sizes, found.world_sizes, names, gains), path)


def shower(found: WinnerMap, path: Path | None) -> Callable[[Console], None]:
    """What shows the table and says where the picture is."""

    def show(console: Console) -> None:
        show_winners(found, console)
        if path is not None:
            console.print(f"The picture: {path}", markup=False, soft_wrap=True)

    return show
