"""Measure the contribution of each term of NCCL's model: refit without it, and evaluate on authors left out.

    python benchmarks/nccl_structure.py [--draws N] [--only TITLE ...] [-o FILE]

A draw needs four refits. Three draws of the model and two draws of each ablation take six minutes on an idle machine.
With ``--only``, the other rows of the file are kept.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.accuracy.judging import score_classes
from benchmarks.accuracy.nccl_answer import accuracy
from benchmarks.accuracy.tables import MeasuredTable, read_tables
from benchmarks.studies.nccl_ablations import ABLATIONS, ablation
from benchmarks.studies.nccl_authors_left_out import DRAWS, compare_without_authors
from collectives.output_files import write_text
from collectives.records.environment import describe_environment
from simcomm.nccl.descriptions import System, read_systems

RESULTS = Path(__file__).parent / "results" / "nccl_structure.json"
COMPARED = 2  # draws of each ablation


def judge(
    systems: Mapping[str, System], tables: Mapping[str, MeasuredTable], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the scores of each draw, by class of sizes."""
    draws = []
    for seed in seeds:
        scores = score_classes(compare_without_authors(systems, tables, seed))
        draws.append({"seed": seed, "classes": {name: asdict(score) for name, score in scores.items()}})
    return draws


def measure(titles: Sequence[str], draws: int, before: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return the scores of the model, of each ablation, and of the systems that no fit used.

    Rows of ``before`` are kept if their titles are not selected.
    """
    systems = read_systems()
    tables = read_tables(systems)
    rows = {row["title"]: row for row in before}
    for title in titles:
        seeds = DRAWS[:draws] if not ABLATIONS[title] else DRAWS[: min(draws, COMPARED)]
        with ablation(title):
            rows[title] = {"title": title, "draws": judge(systems, tables, seeds)}
        sys.stderr.write(f"{title}: done\n")
    return {
        "schema_version": 1,
        "kind": "benchmark",
        "date": datetime.now(UTC).date().isoformat(),
        "environment": describe_environment(),
        "rows": [rows[title] for title in ABLATIONS if title in rows],
        "put_aside": accuracy(only_held_out=True).to_dict()["classes"],
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=len(DRAWS), choices=range(1, len(DRAWS) + 1))
    parser.add_argument("--only", nargs="+", default=list(ABLATIONS), choices=list(ABLATIONS), metavar="TITLE")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    is_there = options.output.is_file() and len(options.only) < len(ABLATIONS)
    before = json.loads(options.output.read_text(encoding="utf-8"))["rows"] if is_there else []
    write_text(options.output, json.dumps(measure(options.only, options.draws, before), indent=1) + "\n")


if __name__ == "__main__":
    main()
