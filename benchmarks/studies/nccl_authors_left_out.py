"""Evaluate NCCL's model with a quarter of the systems left out at a time, grouped by author.

Systems of one author are similar, so leaving out single systems gives optimistic errors. The median over about sixty
systems also changes by a percentage point with every small change. ``python -m
benchmarks.studies.nccl_authors_left_out`` prints the scores of several draws, also after three known rows, in about a
minute.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from math import inf

import numpy as np

from benchmarks.accuracy.judging import ClassScore, Judged, score_classes
from benchmarks.accuracy.nccl import compare_series, judged_series, measure_gains, model_predictor
from benchmarks.accuracy.tables import MeasuredTable, read_tables
from benchmarks.studies.nccl_fit import Observations, fit_parameters, observe_tables
from collectives.input_files import read_text
from simcomm.nccl.descriptions import OWN_DATA, System, read_systems
from simcomm.nccl.parameters import Parameters

PAGE = re.compile(r"https://github\.com/[^/]+/[^/]+(/(issues|pull|discussions)/\d+)?")
PARTS = 4
DRAWS = (1, 2, 3)
KNOWN = (4096.0, 4194304.0, inf)  # bytes of the rows that are known, inf: the largest


@cache
def read_pages() -> dict[str, str]:
    """Return the author of each system that ``systems.csv`` names, or else its GitHub repository or issue."""
    rows = csv.DictReader(read_text(OWN_DATA / "systems.csv").splitlines())
    pages = {row["slug"]: row["author"] or PAGE.match(row["source"]) for row in rows}
    return {slug: page if isinstance(page, str) else page[0] for slug, page in pages.items() if page}


def author_of(system: System) -> str:
    """Return the author of a system: its page, or the word for its hosts, or else the system itself.

    >>> systems = read_systems()
    >>> author_of(systems["a100_40g_1x8_p4d_issue527"]) == author_of(systems["a100_40g_4x8_p4d_issue527"])
    True
    """
    return read_pages().get(system.slug) or system.cluster or system.slug


def draw_authors(systems: Sequence[System], seed: int) -> list[set[str]]:
    """Return the authors in groups of equal size, shuffled with a seed."""
    authors = sorted({author_of(system) for system in systems})
    np.random.default_rng(seed).shuffle(authors)
    return [set(authors[part::PARTS]) for part in range(PARTS)]


def refit_without_authors(observed: Sequence[Observations], seed: int) -> dict[str, Parameters]:
    """Return for each system the parameters of a fit to the three quarters of the authors that exclude its own."""
    fits: dict[str, Parameters] = {}
    for left_out in draw_authors([observations.system for observations in observed], seed):
        seen = [observations for observations in observed if author_of(observations.system) not in left_out]
        fitted = fit_parameters(seen).parameters
        fits |= {
            observations.system.slug: fitted for observations in observed if author_of(observations.system) in left_out
        }
    return fits


def compare_without_authors(systems: Mapping[str, System], tables: Mapping[str, MeasuredTable], seed: int) -> Judged:
    """Return each row with a prediction whose fit excluded its author."""
    fitted = refit_without_authors(observe_tables(systems, tables), seed)
    return compare_series(judged_series(systems, tables), model_predictor(fitted), {})


def main() -> None:
    """Print for each draw the scores before and after rows are known, and the scores of authors with one system."""
    systems = read_systems()
    tables = read_tables(systems)
    observed = observe_tables(systems, tables)
    numbers = Counter(map(author_of, systems.values()))
    lonely = {slug: table for slug, table in tables.items() if numbers[author_of(systems[slug])] == 1}
    for seed in DRAWS:
        fitted = refit_without_authors(observed, seed)
        scores = score_classes(compare_series(judged_series(systems, tables), model_predictor(fitted), {}))
        sys.stdout.write(f"draw {seed}: {_cells(scores)}\n")
        for whose, judged in (("", tables), (", authors of one system", lonely)):
            gain = next(gain for gain in measure_gains(systems, judged, len(KNOWN), fitted) if gain.sizes == KNOWN)
            sys.stdout.write(f"  after 4 KiB, 4 MiB and the largest{whose}: {_cells(gain.after)}\n")


def _cells(scores: Mapping[str, ClassScore]) -> str:
    return "; ".join(
        f"{name} {score.median:.1%} ({score.mean_capped:.1%}), held {score.coverage80:.0%}"
        for name, score in scores.items()
    )


if __name__ == "__main__":
    main()
