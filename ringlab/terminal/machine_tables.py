"""The tables about this machine: of ``calibrate`` and ``doctor``."""

from rich.console import Console

from collectives.units import count
from ringlab.answers.calibration import CalibrationAnswer
from ringlab.answers.findings import DoctorAnswer
from ringlab.table import NOTHING, format_ratio, format_whole_percent, make_table, time_unit


def show_calibration(answer: CalibrationAnswer, console: Console) -> None:
    """Print what was measured, and how well straight lines describe it."""
    calibration = answer.calibration
    lines = (
        ("one way", calibration.one_way),
        ("both ways", calibration.both_ways),
        ("reduction", calibration.reduction),
    )
    unit, form = time_unit(line.fixed for _, line in lines)
    rows = [
        [
            name,
            form(line.fixed),
            format_ratio(1 / line.per_byte / 1e9) if line.per_byte else NOTHING,
            format_whole_percent(line.worst_residual),
        ]
        for name, line in lines
    ]
    title = f"This machine, {count(calibration.ranks, 'rank')} of {count(calibration.threads, 'thread')}"
    console.print(make_table(title, ["", f"fixed\n({unit})", "GB/s", "worst residual"], rows, words=1))
    phases = ("forward", "backward", "optimizer")
    unit, form = time_unit(getattr(point.phases, name) for point in calibration.compute for name in phases)
    compute = [
        [point.model, point.dataset, str(point.batch_size), f"{point.processes} x {point.threads}"]
        + [form(getattr(point.phases, name)) for name in phases]
        + [format_whole_percent(point.spread)]
        for point in calibration.compute
    ]
    if compute:
        headings = [
            "model",
            "dataset",
            "batch",
            "processes\nx threads",
            *(f"{name}\n({unit})" for name in phases),
            "spread",
        ]
        console.print(make_table("Training step without communication", headings, compute, words=2))
    if answer.file:
        console.print(f"Kept in {answer.file}; predictions use it for a day.", soft_wrap=True)


def show_doctor(answer: DoctorAnswer, console: Console) -> None:
    """Print what works and what is missing."""
    rows = [[finding.subject, "yes" if finding.works else "no", finding.detail] for finding in answer.findings]
    console.print(make_table("This machine", ["", "works", ""], rows, words=3))
    missing = answer.missing
    console.print(f"Missing: {', '.join(missing)}." if missing else "Everything is there.")
