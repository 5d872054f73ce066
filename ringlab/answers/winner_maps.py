"""``WinnersAnswer``: where each algorithm wins on a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import viz
from collectives.calibration.calibration import Calibration
from collectives.catalogue import find_algorithm
from collectives.checks import check_cluster, check_sequence
from collectives.errors import InputError
from collectives.records.environment import describe_environment
from collectives.spec import find_spec
from ringlab.shared.answer import SCHEMA_VERSION, Record
from ringlab.shared.progress import Progress, computing
from ringlab.shared.ranges import grow_sizes, parse_world_sizes
from simcomm.cluster.cluster import MOST_RANKS, Cluster
from simcomm.selection import Choice, WinnerMap, winner_map

MOST_CELLS = 5000


@dataclass(frozen=True, repr=False)
class WinnersAnswer(Record):
    """What ``winners`` found: the fastest and the next best algorithm for each world size and size."""

    map: WinnerMap
    dtype: str
    environment: dict[str, str | int] = field(default_factory=describe_environment)

    def __repr__(self) -> str:
        rows, columns = len(self.map.world_sizes), len(self.map.sizes)
        return f"<WinnersAnswer of {self.map.collective} on {self.map.cluster}: {rows} world sizes, {columns} sizes>"

    def draw(self, path: Path | str) -> None:
        """Write the map as a picture: ``.png``, ``.svg`` or ``.pdf``. Raises InputError for another suffix.

        >>> from tempfile import TemporaryDirectory
        >>> import simcomm
        >>> found = winners("all_reduce", simcomm.star(4, "10 Gbit/s", "5 us"), "4", ("1K", "1M", 1024.0))
        >>> with TemporaryDirectory() as folder:
        ...     found.draw(Path(folder, "map.svg"))
        ...     Path(folder, "map.svg").is_file()
        True
        """
        found = self.map
        names = [[choice.algorithm.name for choice in row] for row in found.choices]
        gains = [[choice.gain for choice in row] for row in found.choices]
        title = f"{found.collective} on {found.cluster}"
        shown = viz.Winners(title, found.sizes, found.world_sizes, names, gains)
        viz.draw_winners(shown, path)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "winners",
            "environment": self.environment,
            "collective": self.map.collective,
            "cluster": self.map.cluster,
            "dtype": self.dtype,
            "cells": [
                _cell(world_size, nbytes, choice)
                for world_size, row in zip(self.map.world_sizes, self.map.choices, strict=True)
                for nbytes, choice in zip(self.map.sizes, row, strict=True)
            ],
        }


def winners(
    collective: str,
    cluster: Cluster,
    ranks: str | None = None,
    sizes: tuple[str, str, float] = ("256", "256M", 2.0),
    algorithms: Sequence[str] = (),
    *,
    dtype: str = "float32",
    calibration: Calibration | None = None,
    progress: Progress | None = None,
) -> WinnersAnswer:
    """Return the fastest algorithm on the first hosts of a cluster, for each number of them and each size.

    ``ranks`` is a list like ``2-16,64``; without it numbers that double, with one between. ``sizes`` are the first, the
    last and the factor, as nccl-tests' options. The choice is among ``algorithms``, else among all of the library.
    Raises InputError.

    >>> import simcomm
    >>> winners("broadcast", simcomm.star(4, "10 Gbit/s", "5 us"), "4", ("1K", "1M", 1024.0)).map.winners
    [['binomial', 'double_tree[slices=8]']]
    """
    find_spec(collective)
    check_cluster(cluster, Cluster)
    if len(check_sequence("sizes", sizes, of="the first size, the last and the factor")) != 3:
        raise InputError(f"sizes is {sizes!r}; give the first size, the last and the factor, as in ('1K', '1M', 2.0)")
    world_sizes = _world_sizes(cluster, ranks)
    found = grow_sizes(*sizes)
    if len(found) * len(world_sizes) > MOST_CELLS:
        raise InputError(f"{len(found)} sizes for {len(world_sizes)} numbers of ranks: {MOST_CELLS} cells at most")
    among = [find_algorithm(name, collective) for name in check_sequence("algorithms", algorithms, of="names")] or None
    options: dict[str, Any] = {"dtype": dtype, "among": among, "calibration": calibration}
    with computing(progress, f"choosing at {len(world_sizes)} world sizes and {len(found)} sizes") as tick:
        total, done = sum(world_sizes), 0

        def on_row(world_size: int) -> None:
            nonlocal done
            done += world_size  # which take the longer the larger they are
            tick(0, done, total, f"ranks, down to {world_size}")

        choices = winner_map(collective, cluster, found, world_sizes, **options, on_row=on_row)
    return WinnersAnswer(choices, dtype)


def _world_sizes(cluster: Cluster, ranks: str | None) -> list[int]:
    world_sizes = cluster.world_sizes() if ranks is None else parse_world_sizes(ranks, "--ranks", MOST_RANKS)
    if world_sizes[-1] > cluster.world_size:
        raise InputError(f"--ranks {ranks}: {world_sizes[-1]} do not fit: {cluster.title} holds {cluster.world_size}")
    for world_size in world_sizes:
        cluster.on_first(world_size)
    return world_sizes


def _cell(world_size: int, nbytes: int, choice: Choice) -> dict[str, Any]:
    second = choice.next_best
    return {
        "world_size": world_size,
        "bytes": nbytes,
        "algorithm": choice.algorithm.label,
        "time_s": choice.seconds,
        "next_best": second.algorithm.label if second else None,
        "next_best_time_s": second.seconds if second else None,
    }
