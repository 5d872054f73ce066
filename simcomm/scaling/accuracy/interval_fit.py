"""Fit the widths of intervals to errors of predictions that had not seen a source: ``python -m`` writes them again.

A family with few points is held to all: of n points, its factor counts n / (n + 30).
"""

from collections.abc import Sequence

import numpy as np

from collectives.output_files import write_text
from simcomm.scaling.cases import Floats
from simcomm.scaling.intervals import COVERAGES, FILE, Widths

HELD_TO_ALL = 30  # points: as much as all points together count in the factor of a family
FEWEST = 5  # points of a family for a factor of its own


def fit_widths(sizes: Floats, families: Sequence[str]) -> Widths:
    """Return the widths in which errors lie as often as they should; ``sizes`` are in units of what is unsure.

    >>> fit_widths(np.linspace(0.0, 1.0, 101), ["NVLink"] * 101).quantiles[0.8]
    0.8
    """
    column = np.array(families)
    everywhere = np.quantile(sizes, COVERAGES)
    wider = {}
    for family in sorted(set(families)):
        rows = column == family
        if rows.sum() >= FEWEST:
            apart = float(np.mean(np.log(np.quantile(sizes[rows], COVERAGES) / everywhere)))
            wider[family] = float(np.exp(apart * rows.sum() / (rows.sum() + HELD_TO_ALL)))
    left = sizes / np.array([wider.get(family, 1.0) for family in families])
    quantiles = np.quantile(left, COVERAGES).tolist()
    return Widths(dict(zip(COVERAGES, quantiles, strict=True)), wider)


def write_widths(widths: Widths) -> None:
    """Write the widths that are shipped."""
    lines = ["# Widths of intervals: `make fit-scaling` writes them again.", "", "[quantiles]"]
    lines += [f'"{share}" = {value:.3g}' for share, value in widths.quantiles.items()]
    lines += ["", "[wider]", *(f'"{family}" = {value:.3g}' for family, value in widths.wider.items())]
    write_text(FILE, "\n".join(lines) + "\n")


def main() -> None:
    """Predict the project's own series, each source left out, and write the widths of those not put aside."""
    from simcomm.scaling.accuracy.judging import judge_held_out, seen_series

    judged = judge_held_out(seen_series(), lambda *_: None)
    write_widths(fit_widths(judged.sizes, judged.family))


if __name__ == "__main__":
    main()
