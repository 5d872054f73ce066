"""The table of ``calibrate --nccl-tests``."""

from rich.console import Console

from collectives.units import count, format_size, format_time
from ringlab.answers.nccl_calibration import NcclCalibrationAnswer
from ringlab.terminal.tables import make_table


def show_nccl_calibration(answer: NcclCalibrationAnswer, console: Console) -> None:
    """Print each measured row beside what was predicted without it."""
    rows = [
        [
            row.collective,
            format_size(row.nbytes),
            format_time(row.measured),
            format_time(row.predicted),
            f"{row.predicted / row.measured - 1:+.0%}",
        ]
        for row in answer.rows
    ]
    title = f"{answer.system}: {count(answer.ranks, 'rank')} on {count(answer.hosts, 'host')}"
    console.print(make_table(title, ["", "size", "measured", "predicted", "error"], rows, words=1))
    console.print(f"Kept in {answer.file}; predictions for this hardware are adapted to it.", soft_wrap=True)
