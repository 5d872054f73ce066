"""Measure the errors for systems of authors that no fit has seen: what to expect of your own machine.

    python -m benchmarks.studies.nccl_unseen [--fit]

Prints the errors for authors that are left out of a refit and for held-out systems, and the share of rows inside the 80
% intervals. With ``--fit``, chooses the widths of the intervals with the authors left out, and writes
``simcomm/nccl/intervals.toml``. Held-out systems do not influence them.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.judging import SIZE_CLASSES, ClassScore, Judged, score_classes
from benchmarks.accuracy.nccl import compare_series, judged_series, model_predictor
from benchmarks.accuracy.tables import read_put_aside_tables, read_tables
from benchmarks.studies.nccl_authors_left_out import author_of, compare_without_authors
from collectives.input_files import read_text
from collectives.output_files import write_text
from collectives.units import count
from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.descriptions import OWN_DATA, System, read_systems
from simcomm.nccl.predict import (
    COVERAGE,
    WIDTHS_FILE,
    LogLimits,
    NcclWidths,
    outside_checked,
    widening,
)
from simcomm.nccl.settings import NcclSettings

LOT = 33  # the seed by which a third of the authors is held out, drawn before any of their rows was looked at
DRAW = 1  # of the authors that are left out of a refit
LEAST = 0.1  # in log time: two sound tables of one machine differ by about as much (nccl_noise.py)


@cache
def read_authors() -> dict[str, str]:
    """Return the author of each system whose table was added after the structure of the model was chosen, by slug.

    >>> read_authors()["h100_2x8_nebius_ib"]
    'dstack'
    """
    rows = csv.DictReader(read_text(OWN_DATA / "systems.csv").splitlines())
    return {row["slug"]: row["author"] for row in rows if row["author"]}


def describe_widths(widths: NcclWidths) -> str:
    """Return the content of the file of interval limits.

    >>> one = LogLimits((0.25,), (0.5,))
    >>> print(describe_widths(NcclWidths(one, one)).splitlines()[-1])
    several = { below = [0.25], above = [0.5] }
    """
    lines = [
        f"{name} = {{ below = {list(limits.below)}, above = {list(limits.above)} }}"
        for name, limits in widths._asdict().items()
    ]
    head = "# Limits of 80 % intervals in log time, from small to large: python -m benchmarks.studies.nccl_unseen --fit"
    return "\n".join([head, *lines, ""])


def draw_put_aside() -> frozenset[str]:
    """Return the systems of a random third of these authors, which ``put_aside.txt`` lists.

    >>> len({read_authors()[slug] for slug in draw_put_aside()})
    5
    """
    authors = sorted(set(read_authors().values()))
    drawn = {*np.random.default_rng(LOT).permutation(authors)[: len(authors) // 3].tolist()}
    return frozenset(slug for slug, author in read_authors().items() if author in drawn)


def judge_left_out() -> Judged:
    """Return the rows of all systems that are not held out, predicted by a refit without their authors.

    They have additional keys. ``several``: the system has several nodes. ``wider``: the factor by which its intervals
    are wider. ``later``: its author was added after the structure of the model was chosen.
    """
    systems = read_systems()
    judged = compare_without_authors(systems, read_tables(systems), DRAW)
    columns = {
        **_authors(systems, judged),
        "several": np.array([systems[slug].nccl_nodes > 1 for slug in judged.keys["system"]]),
        "wider": np.array([_widening(systems[slug]) for slug in judged.keys["system"]]),
    }
    return replace(judged, keys={**judged.keys, **columns})


def _authors(systems: Mapping[str, System], judged: Judged) -> dict[str, NDArray[Any]]:
    slugs = judged.keys["system"]
    return {
        "author": np.array([author_of(systems[slug]) for slug in slugs]),
        "later": np.isin(slugs, [*read_authors()]),
    }


@cache
def _widening(system: System) -> float:
    comm = make_communicator(system, NcclSettings())
    return widening(comm, has_like=not outside_checked(system, comm.version))


def fit_widths(judged: Judged) -> NcclWidths:
    """Return limits that leave a tenth of the rows of a further author below and a tenth above.

    Each author has the same weight. The limits account for one author more than there are (n + 1 of n). No limit is
    closer than the difference between two tables of the same machine.
    """
    groups = judged.by("several")
    return NcclWidths(_limits(groups[False]), _limits(groups[True]))


def _limits(group: Judged) -> LogLimits:
    ends = [_quantiles(group.take(group.keys["class"] == size_class)) for size_class in SIZE_CLASSES]
    sides = zip(*((max(-low, LEAST), max(high, LEAST)) for low, high in ends), strict=True)
    return LogLimits(*(tuple(round(limit, 2) for limit in side) for side in sides))


def _quantiles(rows: Judged) -> tuple[float, float]:
    """Return the 10th and 90th percentiles of log(measured / predicted), without the factors that widen intervals."""
    each = [np.log(rows.measured / rows.predicted) / rows.keys["wider"] for rows in rows.by("author").values()]
    weights = np.concatenate([np.full(len(logs), 1 / len(logs) / len(each)) for logs in each])
    every = np.concatenate(each)
    order = np.argsort(every)
    outside = max(0.0, 1 - (1 + COVERAGE) / 2 * (len(each) + 1) / len(each))
    low, high = np.interp([outside, 1 - outside], np.cumsum(weights[order]), every[order])
    return float(low), float(high)


def judge_put_aside() -> Judged:
    """Return the rows of the held-out systems with the shipped model's predictions.

    They have the additional key author. ``later``: the system was held out in the second draw.
    """
    systems = read_systems()
    judged = compare_series(judged_series(systems, read_put_aside_tables()), model_predictor({}), {})
    return replace(judged, keys={**judged.keys, **_authors(systems, judged)})


def judge_groups() -> dict[str, Judged]:
    """Return the rows of authors left out and of held-out systems, for the first authors and for later ones."""
    return {
        f"{count(len({*rows.keys['author']}), 'author')} of {when}, {how}": rows
        for how, judged in (("left out", judge_left_out()), ("held out", judge_put_aside()))
        for when, rows in zip(("the first tables", "later ones"), _first_and_later(judged), strict=True)
    }


def _first_and_later(judged: Judged) -> tuple[Judged, Judged]:
    return judged.take(~judged.keys["later"]), judged.take(judged.keys["later"])


def scores() -> dict[str, dict[str, ClassScore]]:
    """Return the scores of these groups."""
    return {name: score_classes(rows) for name, rows in judge_groups().items()}


def held_by_author(judged: Judged) -> dict[str, float]:
    """Return the share of rows inside the 80 % intervals by size class. Each author has the same weight."""
    groups = {name: judged.take(judged.keys["class"] == name).by("author").values() for name in SIZE_CLASSES}
    return {
        name: float(np.mean([author_rows.held(COVERAGE).mean() for author_rows in authors]))
        for name, authors in groups.items()
    }


def describe() -> Iterator[str]:
    """Yield the lines of a table for docs/reports/nccl.md."""
    inside = "rows inside 80 % intervals"
    yield f"| authors | error up to 64 KiB | up to 16 MiB | above | {inside} | {inside}, authors weighted equally |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, rows in judge_groups().items():
        scores = score_classes(rows)
        errors = " | ".join(f"{100 * (score.median or 0):.0f} % ({score.systems})" for score in scores.values())
        coverages = ", ".join(f"{100 * (score.coverage80 or 0):.0f}" for score in scores.values())
        alike = ", ".join(f"{100 * share:.0f}" for share in held_by_author(rows).values())
        yield f"| {name} | {errors} | {coverages} % | {alike} % |"


def main() -> None:
    """Choose the widths again, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="choose the widths of intervals again")
    if parser.parse_args().fit:
        write_text(WIDTHS_FILE, describe_widths(fit_widths(judge_left_out())))
        return
    sys.stdout.write("".join(f"{line}\n" for line in describe()))


if __name__ == "__main__":
    main()
