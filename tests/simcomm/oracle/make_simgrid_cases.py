"""Draw the cases, ask SimGrid, and write simgrid_cases.json: the same file each time with the same SimGrid.

    cd tests/simcomm && python -m oracle.make_simgrid_cases

needs g++ and SimGrid with its headers (Debian: libsimgrid-dev; made with 3.32). The test that reads the file does not.
"""

import logging
import sys
from pathlib import Path
from random import Random
from typing import Any

from oracle import draw
from oracle.cases import FILE, Case, sent, write_cases
from oracle.run_simgrid import BY_FACTOR, OWN_LATENCIES, answered, has_equal_latencies, simgrid, version, why_not

NUMBERS = {draw.flow_set: 180, draw.step_programs: 80, draw.collective: 70, draw.exchange: 30}
SAME = 1e-12  # relative; to how much both ways to give routes their latencies agree

log = logging.getLogger(__name__)


def drawn() -> list[Case]:
    """All cases, without answers; those in which all messages happen to be empty are left out."""
    cases = (make(Random(f"{make.__name__} {i}"), i) for make, number in NUMBERS.items() for i in range(number))
    return [case for case in cases if any(sent(case.schedule, case.nbytes))]


def checked(runner: Path, case: Case) -> Case:
    """The case with SimGrid's answer, asked in both forms where both share fairly. RuntimeError where they differ."""
    if not has_equal_latencies(case):
        return answered(runner, case, by_factor=True)
    case, other = answered(runner, case, by_factor=False), answered(runner, case, by_factor=True)
    for number, (one, two) in enumerate(zip(case.ends, other.ends, strict=True)):
        if abs(one - two) > SAME * one:
            raise RuntimeError(f"{case}, message {number}: SimGrid says {one} and, by latency factor, {two}")
    return case


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if why_not():
        sys.exit(f"{why_not()}, so that no cases can be made")
    with simgrid() as runner:
        made_by: dict[str, Any] = {"simgrid": version(runner), "own_latencies": OWN_LATENCIES, "by_factor": BY_FACTOR}
        cases = [checked(runner, case) for case in drawn()]
    write_cases(FILE, made_by, cases)
    messages = sum(len(case.ends) for case in cases)
    log.info("%d cases, %d messages, %d bytes in %s", len(cases), messages, FILE.stat().st_size, FILE.name)


if __name__ == "__main__":
    main()
