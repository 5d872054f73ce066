"""A quarter of the systems left out at a time, by author: the steadier judge of a model's structure.

Systems of one author have much in common, so leaving out one of them flatters; and the median over some sixty systems
moves by a point for any change. ``python -m simcomm.nccl.accuracy.leave_authors_out`` prints the scores of several
draws, in about a minute.
"""

import sys
from collections.abc import Mapping, Sequence

import numpy as np

from simcomm.nccl.accuracy.compare import compare_series, judged_series
from simcomm.nccl.accuracy.predictors import model_predictor
from simcomm.nccl.accuracy.scoring import Comparison, score_classes
from simcomm.nccl.descriptions import System, read_systems
from simcomm.nccl.fit import Observations, fit_parameters, observe_tables
from simcomm.nccl.parameters import Parameters
from simcomm.nccl.tables import Table, read_tables

PARTS = 4
DRAWS = (1, 2, 3)


def author_of(system: System) -> str:
    """Return what systems of one author share: the word for their hosts; else a system is its author's only one."""
    return system.cluster or system.slug


def draw_authors(systems: Sequence[System], seed: int) -> list[set[str]]:
    """Return the authors in parts of equal number, shuffled by a seed."""
    authors = sorted({author_of(system) for system in systems})
    np.random.default_rng(seed).shuffle(authors)
    return [set(authors[part::PARTS]) for part in range(PARTS)]


def refit_without_authors(observed: Sequence[Observations], seed: int) -> dict[str, Parameters]:
    """Return for each system the parameters fitted to the three quarters of the authors that are not its own."""
    found: dict[str, Parameters] = {}
    for left_out in draw_authors([one.system for one in observed], seed):
        seen = [one for one in observed if author_of(one.system) not in left_out]
        fitted = fit_parameters(seen).parameters
        found |= {one.system.slug: fitted for one in observed if author_of(one.system) in left_out}
    return found


def compare_without_authors(systems: Mapping[str, System], tables: Mapping[str, Table], seed: int) -> list[Comparison]:
    """Return each series beside its prediction by parameters that never saw its author."""
    fitted = refit_without_authors(observe_tables(systems, tables), seed)
    return compare_series(judged_series(systems, tables), model_predictor(fitted), {})


def main() -> None:
    """Print a line for each draw: in each class of sizes the median, the mean (capped at 100 %) and the coverage."""
    systems = read_systems()
    tables = read_tables(systems)
    for seed in DRAWS:
        scores = score_classes(compare_without_authors(systems, tables, seed))
        cells = [
            f"{name} {score.median:.1%} ({score.mean_capped:.1%}), held {score.coverage80:.0%}"
            for name, score in scores.items()
        ]
        sys.stdout.write(f"draw {seed}: {'; '.join(cells)}\n")


if __name__ == "__main__":
    main()
