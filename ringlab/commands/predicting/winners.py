"""``ringlab winners``: where each algorithm wins on a cluster, the size of the buffer against the number of ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import viz
from collectives.catalogue import find_algorithm
from collectives.checks import MOST_RANKS, check_cluster, check_sequence
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.calibration import Calibration
from collectives.records.environment import describe_environment
from collectives.spec import find_spec
from collectives.units import format_size
from ringlab.session import Session, load_scenario
from ringlab.shared.answer import NOT_IN_JSON, Answer
from ringlab.shared.options import CalibrationOpt, JsonOpt, SetOpt, drawing, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress, computing, draw_to
from ringlab.shared.ranges import MOST_CASES, grow_sizes, parse_world_sizes
from ringlab.table import NOTHING, Part, Row, Table
from scenarios import LoadedScenario
from simcomm import star
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.paths import keeping_paths
from simcomm.selection import AlgorithmChoice, WinnerMap, winner_rows

TIE = 0.01  # times that differ by less are one: the closed forms take chunks as equally long
SIZES = ("256", "256M", 2.0)  # the first, the last, and the factor from one to the next

Sizes = tuple[str, str, float]
SizedChoice = tuple[int, AlgorithmChoice]


@dataclass(frozen=True)
class WinnersOptions:
    """Among what the fastest is to be found, and on what star where no scenario is given."""

    collective: Annotated[
        str | None, Option(metavar="NAME", help="Collective to compare. Default: the scenario's, or all_reduce.")
    ] = None
    ranks: Annotated[
        str | None,
        Option(metavar="LIST", help="Numbers of ranks, such as 2-16,64. Default: powers of two and their midpoints."),
    ] = None
    begin: Annotated[
        str, Option("-b", "--minbytes", metavar="SIZE", help="Smallest buffer size, such as 256 or 1K.")
    ] = SIZES[0]
    end: Annotated[str, Option("-e", "--maxbytes", metavar="SIZE", help="Largest buffer size.")] = SIZES[1]
    factor: Annotated[float, Option("-f", "--stepfactor", help="Factor between consecutive sizes.")] = SIZES[2]
    algorithm: Annotated[
        list[str] | None,
        Option(metavar="NAME|FILE.py:NAME", help="Algorithm to compare. Repeatable. Default: the whole library."),
    ] = None

    hosts: Annotated[
        int, Option(min=1, metavar="N", help="Number of hosts of the star that is used without a scenario.")
    ] = 64
    bandwidth: Annotated[str, Option(metavar="RATE", help="Bandwidth of each link of the star.")] = "100 Gbit/s"
    latency: Annotated[str, Option(metavar="TIME", help="Latency of each link of the star.")] = "2 us"


@with_groups
def command(
    scenario: Annotated[
        str | None,
        Argument(metavar="[SCENARIO]", help="Scenario with the cluster and collective. Default: a star of --hosts."),
    ] = None,
    *,
    asked: WinnersOptions,
    output: Annotated[
        Path | None, drawing("a still picture", "Write the map as .png, .svg or .pdf.", "-o", "--output")
    ] = None,
    calibration: CalibrationOpt = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Map the fastest algorithm by buffer size and number of ranks."""
    loaded = None if scenario is None else load_scenario(scenario, *(set_keys or ()))
    if loaded is None and set_keys:
        raise InputError("--set requires a scenario")
    check_outputs(json_to, output, reads=None if loaded is None else calibration)
    sizes, algorithms = (asked.begin, asked.end, asked.factor), asked.algorithm or ()
    session = Session(calibration=calibration, progress=TerminalProgress())
    if loaded is not None:
        answer = scenario_winners(loaded, asked.collective, asked.ranks, sizes, algorithms, session)
    else:
        if asked.hosts > MOST_RANKS:
            raise InputError(f"--hosts {quote(asked.hosts)}: the maximum is {MOST_RANKS}")
        cluster = star(asked.hosts, asked.bandwidth, asked.latency)
        collective = asked.collective or "all_reduce"
        answer = winners(collective, cluster, asked.ranks, sizes, algorithms, progress=session.progress)
    deliver(answer, json_to, draw_to(answer, output, json_to))


@dataclass(frozen=True, repr=False)
class WinnersAnswer(Answer):
    """What ``winners`` found: the fastest and the next best algorithm for each world size and size."""

    kind = "winners"

    map: WinnerMap = field(metadata=NOT_IN_JSON)
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
        viz.write_figure(viz.winners_figure(viz.Winners(title, found.sizes, found.world_sizes, names, gains)), path)

    def to_dict(self) -> dict[str, Any]:
        cells = [
            _cell(world_size, nbytes, choice)
            for world_size, row in zip(self.map.world_sizes, self.map.choices, strict=True)
            for nbytes, choice in zip(self.map.sizes, row, strict=True)
        ]
        return super().to_dict() | {"collective": self.map.collective, "cluster": self.map.cluster, "cells": cells}

    def show(self) -> Iterator[Part]:
        """Yield a row for each stretch of sizes that one algorithm wins or ties; of the next best the closest."""
        found, rows = self.map, list[Row]()
        for world_size, row in zip(found.world_sizes, found.choices, strict=True):
            first = str(world_size)
            for name, cells in _stretches(list(zip(found.sizes, row, strict=True))):
                rows.append([first, *_stretch(name, cells)])
                first = ""
        headings = ["ranks", "sizes", "fastest", "closest to it", "times as fast"]
        yield Table(f"{found.collective} on {found.cluster}", headings, rows, words=4)
        if len(rows) < sum(len([*groupby(choice.algorithm.name for choice in row)]) for row in found.choices):
            yield f"Algorithms less than {TIE:.0%} apart are as fast as each other by this model, and stand in one row."


def winners(
    collective: str,
    cluster: Cluster,
    ranks: str | None = None,
    sizes: Sizes = SIZES,
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
        raise InputError(f"sizes must be (first, last, factor), as in ('1K', '1M', 2.0), not {sizes!r}")
    world_sizes = _world_sizes(cluster, ranks)
    found = grow_sizes(*sizes)
    if len(found) * len(world_sizes) > MOST_CASES:
        raise InputError(
            f"{len(found)} sizes for {len(world_sizes)} numbers of ranks; the map has at most {MOST_CASES:,} cells"
        )
    among = [find_algorithm(name, collective) for name in check_sequence("algorithms", algorithms, of="names")] or None
    rows = dict[int, tuple[AlgorithmChoice, ...]]()
    told = f"choosing at {len(world_sizes)} world sizes and {len(found)} sizes"
    with computing(progress, told) as tick, keeping_paths():
        for world_size, row in winner_rows(
            collective, cluster, found, world_sizes, dtype=dtype, among=among, calibration=calibration
        ):
            rows[world_size] = row  # takes the longer the more ranks there are
            tick(0, sum(rows), sum(world_sizes), f"ranks, down to {world_size}")
    return WinnersAnswer(WinnerMap.of_rows(collective, cluster, found, world_sizes, rows), dtype)


def scenario_winners(
    scenario: LoadedScenario, collective: str | None, ranks: str | None, sizes: Sizes, algorithms: Sequence[str],
    session: Session,
) -> WinnersAnswer:  # fmt: skip
    """Return the winners on a scenario's cluster, of its own collective unless another is given. Raise InputError."""
    compared = scenario.collective
    return winners(
        collective or (compared.name if compared else "all_reduce"),
        scenario.cluster,
        ranks,
        sizes,
        algorithms,
        dtype=compared.dtype if compared else "float32",
        calibration=session.find_calibration(scenario),
        progress=session.progress,
    )


def _world_sizes(cluster: Cluster, ranks: str | None) -> list[int]:
    world_sizes = cluster.world_sizes() if ranks is None else parse_world_sizes(ranks, "--ranks", MOST_RANKS)
    if world_sizes[-1] > cluster.world_size:
        raise InputError(
            f"--ranks {ranks}: {world_sizes[-1]} ranks do not fit on {cluster.title}, which has {cluster.world_size}"
        )
    for world_size in world_sizes:
        cluster.on_first(world_size)
    return world_sizes


def _cell(world_size: int, nbytes: int, choice: AlgorithmChoice) -> dict[str, Any]:
    second = choice.next_best
    return {
        "world_size": world_size,
        "bytes": nbytes,
        "algorithm": choice.algorithm.label,
        "time_s": choice.seconds,
        "next_best": second.algorithm.label if second else None,
        "next_best_time_s": second.seconds if second else None,
    }


def _stretches(cells: Sequence[SizedChoice]) -> Iterator[tuple[str, Sequence[SizedChoice]]]:
    """Yield an algorithm and the cells in a row that it wins or ties; of those that tie the one that has most."""
    at = 0
    while at < len(cells):
        lasting = dict.fromkeys(_best_times(cells[at][1], TIE), 1)
        for name in lasting:
            while at + lasting[name] < len(cells) and name in _best_times(cells[at + lasting[name]][1], TIE):
                lasting[name] += 1
        name = max(lasting, key=lasting.__getitem__)
        yield name, cells[at : at + lasting[name]]
        at += lasting[name]


def _best_times(choice: AlgorithmChoice, within: float = inf) -> dict[str, float]:
    """Return the seconds of each algorithm that takes at most this share more than the fastest, which is the first."""
    best = dict[str, float]()
    for one in choice.candidates:
        if one.seconds <= choice.seconds * (1 + within):
            best.setdefault(one.algorithm.name, one.seconds)
    return best


def _stretch(name: str, cells: Sequence[SizedChoice]) -> list[str]:
    sizes = " to ".join(dict.fromkeys(format_size(nbytes) for nbytes in (cells[0][0], cells[-1][0])))
    gains = dict[float, str]()
    for _, choice in cells:
        best = _best_times(choice)
        own = best.pop(name)
        if best and own > 0:
            closest = min(best, key=best.__getitem__)
            gains.setdefault(max(1.0, best[closest] / own), closest)
    shown = " to ".join(dict.fromkeys(f"{gain:.2f}" for gain in (min(gains), max(gains)))) if gains else NOTHING
    return [sizes, name, gains[min(gains)] if gains else NOTHING, shown]
