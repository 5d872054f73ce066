"""The table of ``calibrate --nccl-tests``."""

from rich.console import Console

from collectives.units import count, format_size
from ringlab.answers.nccl_calibration import NcclCalibrationAnswer
from ringlab.table import make_table, time_unit


def show_nccl_calibration(answer: NcclCalibrationAnswer, console: Console) -> None:
    """Print each measured row beside what was predicted without it."""
    unit, form = time_unit(seconds for row in answer.rows for seconds in (row.measured, row.predicted))
    rows = [
        [
            row.collective,
            format_size(row.nbytes),
            form(row.measured),
            form(row.predicted),
            f"{row.predicted / row.measured - 1:+.0%}",
        ]
        for row in answer.rows
    ]
    title = f"{answer.system}: {count(answer.ranks, 'rank')} on {count(answer.hosts, 'host')}"
    console.print(
        make_table(title, ["", "size", f"measured\n({unit})", f"predicted\n({unit})", "error"], rows, words=1)
    )
    console.print(f"Kept in {answer.file}; predictions for this hardware are adapted to it.", soft_wrap=True)
