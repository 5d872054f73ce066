"""Simulate all cases again with SimGrid, and write simgrid_cases.json. The same SimGrid always writes the same file.

    cd tests/simcomm && python -m oracle.make_simgrid_cases

requires g++ and SimGrid with its headers (Debian: libsimgrid-dev; made with 3.32). The test that reads the file does
not.
"""

import sys
from pathlib import Path
from typing import Any

from oracle.cases import FILE, Case, read_cases, write_cases
from oracle.run_simgrid import BY_FACTOR, OWN_LATENCIES, answered, has_equal_latencies, simgrid, version, why_not

SAME = 1e-12  # relative difference of SimGrid's answers with the two forms of latencies


def checked(runner: Path, case: Case) -> Case:
    """Return the case with SimGrid's times. Raise RuntimeError if the two forms of latencies give different times."""
    if not has_equal_latencies(case):
        return answered(runner, case, by_factor=True)
    case, other = answered(runner, case, by_factor=False), answered(runner, case, by_factor=True)
    for number, (end, two) in enumerate(zip(case.ends, other.ends, strict=True)):
        if abs(end - two) > SAME * end:
            raise RuntimeError(f"{case}, message {number}: SimGrid says {end} and, by latency factor, {two}")
    return case


if __name__ == "__main__":
    if why_not():
        sys.exit(f"{why_not()}, so that no cases can be made")
    with simgrid() as runner:
        made_by: dict[str, Any] = {"simgrid": version(runner), "own_latencies": OWN_LATENCIES, "by_factor": BY_FACTOR}
        write_cases(FILE, made_by, [checked(runner, case) for case in read_cases()[1]])
