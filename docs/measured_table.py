"""Write the example of `explain --measured`, and the verdicts on healthy machines."""

import tempfile
from collections import Counter
from io import StringIO
from pathlib import Path

from page_writer import Parts, table
from rich.console import Console

from benchmarks.accuracy.tables import read_table, space_evenly
from benchmarks.studies.measured_healthy import GROUPS, judge_healthy, print_table
from ringlab.commands.predicting.explain_measured import explain_measured
from ringlab.table import print_parts
from simcomm.nccl.descriptions import OWN_DATA, read_systems

EXAMPLE = "rtx4090_4x_kalavai"
ROWS = 8
COLUMNS = 100  # of the terminal in the example


def example() -> str:
    """Return the output of the command for some rows of a published table."""
    system = read_systems()[EXAMPLE]
    series = space_evenly(read_table(OWN_DATA / f"{EXAMPLE}.csv").series(system.ranks)["all_reduce"], ROWS)
    with tempfile.TemporaryDirectory() as folder, StringIO() as file:
        path = Path(folder, "all_reduce.txt")
        path.write_text(print_table(system, series), encoding="utf-8")
        print_parts(explain_measured(path).show(), Console(file=file, width=COLUMNS))
        lines = [line.rstrip() for line in file.getvalue().splitlines()]
    return "\n".join(["```", "$ ringlab explain --measured all_reduce.txt", *filter(None, lines), "```"]) + "\n"


def healthy() -> str:
    """Return the number of published tables of healthy machines by verdict."""
    verdicts = {group: Counter[str]() for group in GROUPS}
    for judged in judge_healthy():
        verdicts[judged.group][judged.verdict] += 1
    rows = [[group, tally.total(), *(tally[name] for name in VERDICTS)] for group, tally in verdicts.items()]
    return table(f"systems | tables: | {': | '.join(VERDICTS)}:", rows)


VERDICTS = ("as expected", "slower", "faster")
PARTS: Parts = {"docs/how-to/check-nccl.md": {"example": example, "healthy": healthy}}
