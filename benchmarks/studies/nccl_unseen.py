"""Systems of authors that no fit and no choice of structure has seen: what to expect of a machine of one's own.

    python -m benchmarks.studies.nccl_unseen [--fit]

Prints the errors of the model as it is shipped, and what share of rows its 80 % intervals hold: of the authors by whom
the widths of intervals are chosen, and of those that were put aside before. ``--fit`` chooses the widths again and
writes ``simcomm/nccl/intervals.toml``.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from collectives.input_files import read_text
from collectives.output_files import write_text
from simcomm.accuracy.judging import SIZE_CLASSES, ClassScore, Judged, score_classes
from simcomm.accuracy.nccl import compare_series, judged_series, model_predictor
from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.descriptions import OWN_DATA, System, read_systems
from simcomm.nccl.intervals import (
    COVERAGE,
    WIDTHS_FILE,
    LogLimits,
    NcclWidths,
    describe_widths,
    outside_checked,
    read_widths,
    widening,
)
from simcomm.nccl.measured.tables import read_tables
from simcomm.nccl.settings import NcclSettings

LOT = 33  # the seed by which a third of the authors is put aside, drawn before any of their rows was looked at
LEAST_ONE_NODE, LEAST_SEVERAL = (0.27, 0.28, 0.32), (0.33, 0.40, 0.37)  # what own systems, authors left out, need


@cache
def read_authors() -> dict[str, str]:
    """Return the author of each system whose table came after the model's structure, by slug.

    >>> read_authors()["h100_2x8_nebius_ib"]
    'dstack'
    """
    rows = csv.DictReader(read_text(OWN_DATA / "systems.csv").splitlines())
    return {row["slug"]: row["author"] for row in rows if row["author"]}


def draw_put_aside() -> frozenset[str]:
    """Return the systems of a third of these authors, drawn by lot: ``put_aside.txt`` names them.

    >>> len({read_authors()[slug] for slug in draw_put_aside()})
    5
    """
    authors = sorted(set(read_authors().values()))
    drawn = {*np.random.default_rng(LOT).permutation(authors)[: len(authors) // 3].tolist()}
    return frozenset(slug for slug, author in read_authors().items() if author in drawn)


def judge() -> Judged:
    """Return all rows of these systems beside what the shipped model says of them, but of none put aside.

    They are also keyed by author; ``several`` says whether a system has several nodes, ``wider`` how many times as wide
    its intervals are.
    """
    systems, authors = read_systems(), read_authors()
    tables = read_tables(slug for slug in systems if slug in authors)
    found = compare_series(judged_series(systems, tables), model_predictor({}), {})
    slugs = found.keys["system"].tolist()
    columns = {
        "author": np.array([authors[slug] for slug in slugs]),
        "several": np.array([systems[slug].nccl_nodes > 1 for slug in slugs]),
        "wider": np.array([_widening(systems[slug]) for slug in slugs]),
    }
    return replace(found, keys={**found.keys, **columns})


@cache
def _widening(system: System) -> float:
    comm = make_communicator(system, NcclSettings())
    return widening(comm, has_like=not outside_checked(system, comm.version))


def fit_widths(judged: Judged) -> NcclWidths:
    """Return limits that leave a tenth of the rows below and a tenth above, of the authors that are not put aside.

    Each author counts the same. No limit is below what the model's own systems need.
    """
    groups = judged.by("several")
    return NcclWidths(_limits(groups[False], LEAST_ONE_NODE), _limits(groups[True], LEAST_SEVERAL))


def _limits(group: Judged, least: Sequence[float]) -> LogLimits:
    found = [_quantiles(group.take(group.keys["class"] == size_class)) for size_class in SIZE_CLASSES]
    sides = zip(*((max(-low, own), max(high, own)) for (low, high), own in zip(found, least, strict=True)), strict=True)
    return LogLimits(*(tuple(round(one, 2) for one in side) for side in sides))


def _quantiles(rows: Judged) -> tuple[float, float]:
    """Return the logarithms of measured / predicted that a tenth of the rows is below or above.

    They are divided by what makes the intervals of a system wider.
    """
    each = [np.log(one.measured / one.predicted) / one.keys["wider"] for one in rows.by("author").values()]
    weights = np.concatenate([np.full(len(one), 1 / len(one) / len(each)) for one in each])
    every = np.concatenate(each)
    order = np.argsort(every)
    low, high = np.interp([(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], np.cumsum(weights[order]), every[order])
    return float(low), float(high)


def scores() -> dict[str, dict[str, ClassScore]]:
    """Return the scores of the authors by whom widths are chosen."""
    return {"seen": score_classes(judge())}


def describe() -> Iterator[str]:
    """Yield the lines of a table, as docs/nccl.md has it."""
    yield "| systems of | error up to 64 KiB | to 16 MiB | above | rows held by 80 % intervals |"
    yield "| --- | --- | --- | --- | --- |"
    for name, found in scores().items():
        errors = " | ".join(f"{100 * (one.median or 0):.0f} % of {one.systems}" for one in found.values())
        held = ", ".join(f"{100 * (one.coverage80 or 0):.0f}" for one in found.values())
        yield f"| {name} | {errors} | {held} % |"


def main() -> None:
    """Print the table, after choosing the widths if that is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="choose the widths of intervals again")
    if parser.parse_args().fit:
        write_text(WIDTHS_FILE, describe_widths(fit_widths(judge())))
        read_widths.cache_clear()
    sys.stdout.write("".join(f"{line}\n" for line in describe()))


if __name__ == "__main__":
    main()
