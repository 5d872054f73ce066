"""Measure how much published tables of the same type of machine differ: a lower bound on the error of any model.

    python -m benchmarks.studies.nccl_noise

Two tables belong to the same type of machine if their descriptions agree in GPUs, hosts, links and NICs, and their
authors differ. Collectives, processes and versions may differ, so each time is divided by the model's prediction. The
medians of these ratios in each size class are compared.
"""

import sys
from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.judging import SIZE_CLASSES, Judged
from benchmarks.accuracy.nccl import compare_series, judged_series, model_predictor
from benchmarks.accuracy.tables import read_put_aside_tables, read_tables
from benchmarks.studies.nccl_authors_left_out import author_of
from simcomm.nccl.descriptions import System, read_systems

ALIKE = ("nodes", "gpus", "gpu", "link", "nvlink", "layout", "p2p", "domain", "harness")
ALIKE_BETWEEN = ("net", "nic")  # of several hosts
FAULTY = 2.0  # times as slow as another table of its machine: no description of sound ones reaches that


class TablePair(NamedTuple):
    """Two tables of the same type of machine in a size class, and the factor between them, at least 1."""

    size_class: str
    one: str
    other: str
    factor: float


def same_machine(system: System, other: System) -> bool:
    """Return whether two descriptions agree in the hardware and the harness.

    >>> systems = read_systems()
    >>> same_machine(systems["mi300x_1x8_rccl"], systems["mi300x_1x8_rocm_docs"])
    True
    """
    names = (*ALIKE, *(ALIKE_BETWEEN if system.nodes > 1 else ()))
    return all(getattr(system, name) == getattr(other, name) for name in names)


def find_pairs(systems: Mapping[str, System], judged: Judged) -> list[TablePair]:
    """Return the pairs of tables by different authors of the same type of machine."""
    offsets = {
        key: float(np.median(np.log(rows.measured / rows.predicted)))
        for key, rows in judged.by("class", "system").items()
    }
    return [
        TablePair(size_class, slug, other, float(np.exp(abs(offsets[size_class, slug] - offsets[size_class, other]))))
        for (size_class, slug), (another, other) in combinations(offsets, 2)
        if size_class == another
        and author_of(systems[slug]) != author_of(systems[other])
        and same_machine(systems[slug], systems[other])
    ]


def judge() -> Judged:
    """Return the rows of all tables with the shipped model's predictions, including held-out tables."""
    systems = read_systems()
    tables = read_tables(systems) | read_put_aside_tables()
    return compare_series(judged_series(systems, tables), model_predictor({}), {})


def describe(pairs: list[TablePair]) -> str:
    """Return the differences between two tables of one machine, and the lower bounds on the error of any prediction.

    The absolute log errors of one prediction for both tables sum to at least the log of their ratio.
    """
    factors_by_class = {
        name: np.array([pair.factor for pair in pairs if pair.size_class == name]) for name in SIZE_CLASSES
    }
    sound = {name: factors[factors <= FAULTY] for name, factors in factors_by_class.items()}
    cells = [
        f"{name} {_percent(factors)} ({len(factors)} pairs, {_percent(factors, 0.25)[:-2]} to "
        f"{_percent(factors, 0.75)})"
        for name, factors in factors_by_class.items()
    ]
    alike = [f"{name} {_percent(factors)} ({len(factors)} pairs)" for name, factors in sound.items()]
    halves = [f"{name} {_percent(np.sqrt(factors))}" for name, factors in factors_by_class.items()]
    return (
        f"Median difference between two tables of the same machine, with its quartiles: {', '.join(cells)}. In some "
        f"pairs, one table is more than {FAULTY:g} times as slow as the other. Without them, the medians are: "
        f"{', '.join(alike)}. Any single prediction for both tables of a pair has a mean error of at least half their "
        f"difference. The median of this bound is: {', '.join(halves)}."
    )


def _percent(factors: NDArray[np.float64], share: float = 0.5) -> str:
    """Return a quantile of factors, minus 1, as a percentage."""
    return f"{100 * (np.quantile(factors, share) - 1):.0f} %"


def main() -> None:
    """Print each pair, and the medians."""
    pairs = find_pairs(read_systems(), judge())
    for pair in pairs:
        sys.stdout.write(f"{pair.size_class}: {pair.one} and {pair.other}: {100 * (pair.factor - 1):.0f} %\n")
    sys.stdout.write(describe(pairs) + "\n")


if __name__ == "__main__":
    main()
