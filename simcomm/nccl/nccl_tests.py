"""Read what nccl-tests printed, as a table or as JSON (``-J FILE``): strictly, as predictions are fitted to it.

The format is that of https://github.com/NVIDIA/nccl-tests, src/util.cu and, of versions before 2025, src/common.cu;
older versions name neither themselves nor the collective and leave columns out. Out-of-place figures are taken, or
in-place ones where there are no others; both are checked. A row is refused, with its line, where the run found wrong
values, where size does not follow from count and type, algbw from size and time, or busbw from algbw by the factor of
the collective, within the digits that are printed.
"""

from pathlib import Path

from collectives.errors import InputError
from collectives.input_files import read_text
from collectives.suggestions import suggest
from simcomm.nccl.nccl_tests_json import read_json
from simcomm.nccl.nccl_tests_rows import NcclTestsRun
from simcomm.nccl.nccl_tests_table import read_table
from simcomm.nccl.tables import COLLECTIVES

MOST_BYTES = 100_000_000  # of a file: a thousand times what a sweep prints


def read_nccl_tests(path: Path | str, collective: str | None = None) -> NcclTestsRun:
    """Return the rows that nccl-tests wrote to a file.

    ``collective`` names what was measured where the output does not, as that of older versions; all_reduce unless said.
    Raises InputError that names file, line, value and what would be accepted.
    """
    path = Path(path)
    if collective is not None and collective not in COLLECTIVES:
        raise InputError(f"collective {collective!r} is not known; {suggest(collective, COLLECTIVES)}")
    text = read_text(path, MOST_BYTES)
    read = read_json if text.lstrip().startswith("{") else read_table
    run = read(path, text, COLLECTIVES[collective] if collective else None)
    if not run.rows:
        raise InputError(f"{path}: no row of nccl-tests; give the output of all_reduce_perf, or of -J")
    if run.ranks % run.hosts:
        raise InputError(f"{path}: {run.ranks} ranks are not spread evenly over {run.hosts} hosts")
    return run
