"""Systems of authors that no fit and no choice of structure has seen: what to expect of a machine of one's own.

    python -m benchmarks.studies.nccl_unseen [--fit]

Prints the errors of the model as it is shipped, and what share of rows its 80 % intervals hold: of the authors by whom
the widths of intervals are chosen, and of those that were put aside before. ``--fit`` chooses the widths again and
writes ``simcomm/nccl/intervals.toml``.
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectives.input_files import read_text
from collectives.output_files import write_text
from simcomm.nccl.accuracy.compare import compare_series, judged_series
from simcomm.nccl.accuracy.predictors import model_predictor
from simcomm.nccl.accuracy.scoring import SIZE_CLASSES, ClassScore, Comparison, class_mask, score_classes
from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.descriptions import OWN_DATA, System, read_systems
from simcomm.nccl.intervals import (
    COVERAGE,
    WIDTHS_FILE,
    Limits,
    Widths,
    describe_widths,
    outside_checked,
    read_widths,
    widening,
)
from simcomm.nccl.measured.tables import read_tables
from simcomm.nccl.settings import NcclSettings

UNSEEN = OWN_DATA / "unseen"
PUT_ASIDE = frozenset({"azure-guide", "hisohara", "rocm-blog", "skypilot", "violet"})  # a third, before any result
LEAST_ONE_NODE, LEAST_SEVERAL = (0.27, 0.28, 0.32), (0.33, 0.40, 0.37)  # what own systems, authors left out, need


class Judged(NamedTuple):
    """A series of an unseen system beside its prediction."""

    author: str
    system: System
    series: Comparison


def read_authors() -> dict[str, str]:
    """Return the author of each unseen system, by slug.

    >>> read_authors()["h100_2x8_nebius_ib"]
    'dstack'
    """
    rows = csv.DictReader(read_text(UNSEEN / "systems.csv").splitlines())
    return {row["slug"]: row["author"] for row in rows}


def judge() -> list[Judged]:
    """Return all series of unseen systems beside what the shipped model says of them."""
    systems, authors = read_systems(UNSEEN), read_authors()
    judged = judged_series(systems, read_tables(systems, UNSEEN))
    found = compare_series(judged, model_predictor({}), {})
    return [Judged(authors[one.slug], systems[one.slug], one) for one in found]


def fit_widths(judged: Iterable[Judged]) -> Widths:
    """Return limits that leave a tenth of the rows below and a tenth above, of the authors that are not put aside.

    Each author counts the same. No limit is below what the model's own systems need.
    """
    seen = [one for one in judged if one.author not in PUT_ASIDE]
    groups = ([one for one in seen if (one.system.nccl_nodes > 1) == several] for several in (False, True))
    return Widths(
        *(_limits(group, least) for group, least in zip(groups, (LEAST_ONE_NODE, LEAST_SEVERAL), strict=True))
    )


def _limits(group: Sequence[Judged], least: Sequence[float]) -> Limits:
    found = [_quantiles(group, size_class) for size_class in SIZE_CLASSES]
    sides = zip(*((max(-low, own), max(high, own)) for (low, high), own in zip(found, least, strict=True)), strict=True)
    return Limits(*(tuple(round(one, 2) for one in side) for side in sides))


def _quantiles(group: Iterable[Judged], size_class: str) -> tuple[float, float]:
    """Return the logarithms of measured / predicted of one class of sizes, that a tenth of the rows is below or above.

    They are divided by what makes the intervals of a system wider.
    """
    by_author: dict[str, list[NDArray[np.float64]]] = {}
    for one in group:
        mask, comm = class_mask(size_class, one.series.nbytes), make_communicator(one.system, NcclSettings())
        wider = widening(comm, has_like=not outside_checked(one.system, comm.version))
        by_author.setdefault(one.author, []).append(
            np.log(one.series.measured[mask] / one.series.predicted[mask]) / wider
        )
    rows = [found for each in by_author.values() if len(found := np.concatenate(each))]
    weights = np.concatenate([np.full(len(each), 1 / len(each) / len(rows)) for each in rows])
    every = np.concatenate(rows)
    order = np.argsort(every)
    low, high = np.interp([(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], np.cumsum(weights[order]), every[order])
    return float(low), float(high)


def scores() -> dict[str, dict[str, ClassScore]]:
    """Return the scores of authors by whom widths are chosen, of those put aside, and of all."""
    judged = judge()
    groups = {
        "authors by whom the widths are chosen": [one.series for one in judged if one.author not in PUT_ASIDE],
        "authors put aside": [one.series for one in judged if one.author in PUT_ASIDE],
        "all": [one.series for one in judged],
    }
    return {name: score_classes(series) for name, series in groups.items()}


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
