"""``python -m simcomm.scaling.accuracy.shipped_widths`` writes the widths of intervals that are shipped again."""

import numpy as np

from collectives.output_files import write_text
from simcomm.scaling.accuracy.interval_fit import fit_widths
from simcomm.scaling.accuracy.judging import judge_held_out, seen_series
from simcomm.scaling.intervals import FILE, Widths


def write_widths(widths: Widths) -> None:
    """Write the widths that are shipped."""
    lines = ["# Widths of intervals: `make fit-scaling` writes them again.", "", "[shape]"]
    lines += [f"{name} = {value:.3g}" for name, value in widths.shape.items()]
    lines += ["", "[quantiles]", *(f'"{share}" = {value:.3g}' for share, value in widths.quantiles.items())]
    write_text(FILE, "\n".join(lines) + "\n")


def main() -> None:
    """Predict the project's own series, each source left out, and write the widths of those not put aside."""
    judged = judge_held_out(seen_series(), lambda *_: None)
    write_widths(fit_widths(np.log(judged.predicted / judged.measured), judged.shares, judged.source, judged.hard))


if __name__ == "__main__":
    main()
