"""Cases of public threads: told right, wrong or not known.

    python -m benchmarks.studies.diagnosed_cases [--write]

A case is right where a cause that its author or a maintainer found is among the first two, or where a healthy one is
called normal; not known where the verdict is unknown; else wrong.
"""

import json
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.studies.diagnosed_healthy import judge_healthy
from collectives.errors import InputError
from collectives.output_files import write_text
from simcomm.diagnosis.verdict import Diagnosis, diagnose_files

FOLDER = Path(__file__).parent / "diagnosed_threads"
HALVES = ("known", "aside", "later", "second_lot", "third_lot", "fourth_lot")
OPENED_ONCE = {
    "first_opening": "aside",
    "second_opening": "second_lot",
    "third_opening": "third_lot",
    "fourth_opening": "fourth_lot",
}
RESULTS = Path(__file__).parents[1] / "results" / "diagnosed.json"
TOLD = ("right", "wrong", "unknown")
MOST = 2  # causes among which the right one should be


class Outcome(NamedTuple):
    """What was made of a case: right, wrong or unknown, and the first causes."""

    name: str
    told: str
    verdict: str
    causes: tuple[str, ...]
    wanted: tuple[str, ...]


def read_cases(half: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the cases of a half by name."""
    for path in sorted((FOLDER / half).glob("*.toml")):
        yield path.stem, tomllib.loads(path.read_text(encoding="utf-8"))


def diagnose_case(case: dict[str, Any]) -> Diagnosis:
    """Return the diagnosis of a case's files."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for file in case["files"]:
            path = Path(folder, file["name"])
            path.write_text(file["text"].lstrip("\n"), encoding="utf-8")
            paths.append(path)
        return diagnose_files(paths, case.get("given"), hangs=case.get("hangs", False))


def judge_case(name: str, case: dict[str, Any]) -> Outcome:
    """Return what was made of a case; of files that are refused nothing is known."""
    try:
        found = diagnose_case(case)
    except InputError:
        return Outcome(name, "unknown", "refused", (), tuple(case["causes"]))
    causes = tuple(one.name for one in found.causes[:MOST])
    wanted = tuple(case["causes"])
    if found.verdict == "unknown":
        told = "right" if case["verdict"] == "unknown" else "unknown"
    elif not wanted:
        told = "right" if found.verdict == case["verdict"] else "wrong"
    elif set(causes) & set(wanted):
        told = "right"
    else:
        told = "unknown" if not causes and found.verdict != "normal" else "wrong"
    return Outcome(name, told, found.verdict, causes, wanted)


def judge_half(half: str) -> list[Outcome]:
    """Return what was made of each case of a half."""
    return [judge_case(name, case) for name, case in read_cases(half)]


def describe_halves() -> dict[str, list[dict[str, Any]]]:
    """Return what was made of the cases of both halves, as plain JSON."""
    return {half: [one._asdict() for one in judge_half(half)] for half in HALVES}


def write_results() -> None:
    """Write what was made of all cases and healthy tables; what the half put aside showed at first stays."""
    threads = describe_halves()
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    today = datetime.now(UTC).date().isoformat()
    openings = {name: before.get(name) or {"date": today, half: threads[half]} for name, half in OPENED_ONCE.items()}
    found = {"date": today, **openings, "threads": threads}
    found["healthy"] = [*map(list, judge_healthy())]
    write_text(RESULTS, json.dumps(found, indent=1) + "\n")


def main() -> None:
    """Print what was made of the cases; ``--write`` also writes the results, with healthy tables."""
    for half in HALVES:
        outcomes = judge_half(half)
        for one in outcomes:
            print(f"{half:6} {one.told:8} {one.name:32} {one.verdict:8} {one.causes} for {one.wanted}")
        tally = Counter(one.told for one in outcomes)
        shares = ", ".join(f"{tally[told]} {told} ({tally[told] / len(outcomes):.0%})" for told in TOLD)
        print(f"{half}: {len(outcomes)} cases; {shares}")
    if "--write" in sys.argv:
        write_results()


if __name__ == "__main__":
    main()
