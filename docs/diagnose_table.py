"""Writes what docs/diagnose.md shows: six walked cases, and how public threads and healthy tables are told."""

import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

from page_writer import ROOT, Parts, read_results, table

from benchmarks.studies.diagnosed_cases import read_cases
from simcomm.diagnosis.verdict import Diagnosis, diagnose_files

STUDIES = ROOT / "benchmarks" / "studies"
WALKED = {  # file of a case: what its owner asks
    "nccl_tests_152": "Two hosts of A100 are far slower together than each alone. Pasted: the log of NCCL_DEBUG=INFO.",
    "container_toolkit_1877": "A container trains over TCP although the host has RoCE. Pasted: the first lines of "
    "the log.",
    "nccl_tests_106": "Pairs of hosts have 88 GB/s or 49. Pasted: five tables of all_reduce_perf, a pair each.",
    "tinygrad_6": "Seven boards in one host. Pasted: p2pBandwidthLatencyTest.",
    "ms_swift_9443": "A training stops. Pasted: the exception of one rank.",
}
RUN = "lossy-rank"
RUN_ASKED = "A ring of ours on four emulated hosts is slow. Given: its Trace, and `tc -s qdisc` of each host."
TOLD = ("right", "wrong", "unknown")


def walked() -> str:
    """Return each case: what was asked, the verdict, the first cause with its line, and what to do."""
    parts = []
    for number, (name, asked) in enumerate(WALKED.items(), start=1):
        case = tomllib.loads((STUDIES / "diagnosed_threads" / "known" / f"{name}.toml").read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            for file in case["files"]:
                Path(folder, file["name"]).write_text(file["text"].lstrip("\n"), encoding="utf-8")
            found = diagnose_files([Path(folder, file["name"]) for file in case["files"]], case.get("given"))
        parts.append("\n".join([*_case(number, asked, found), fill(f"({case['source']}: {case['found']}.)", 118), ""]))
    files = [STUDIES / "diagnosed_runs" / f"{RUN}.{kind}" for kind in ("trace.json", "queues.txt")]
    parts.append("\n".join([*_case(len(WALKED) + 1, RUN_ASKED, diagnose_files(files)), "(One host's queue drops "
                                                                                       "packets: "
                            "`benchmarks/studies/diagnosed_emulation.py`.)", ""]))  # fmt: skip
    return "\n".join(parts)


def _case(number: int, asked: str, found: Diagnosis) -> Iterator[str]:
    first = found.causes[0]
    place = first.place
    where = f"{Path(place.file).name}:{place.line}" if place.line else Path(place.file).name
    yield fill(f"{number}. {asked} `ringlab diagnose` says *{found.verdict}*:", 118, break_on_hyphens=False)
    yield ""
    yield "```text"
    yield fill(first.text, 110, break_on_hyphens=False)
    yield fill(f"{where}: {first.evidence}" if place.line else where, 110, break_on_hyphens=False)
    yield fill(f"-> {first.remedy}", 110, break_on_hyphens=False)
    yield "```"
    yield ""


def threads() -> str:
    """Return how many cases of public threads are told right, wrong, or not known."""
    found = read_results("diagnosed")
    first, second, third, fourth = (found[f"{name}_opening"] for name in ("first", "second", "third", "fourth"))
    groups = {
        "by which the rules were written": found["threads"]["known"],
        f"put aside, when they were opened ({first['date']})": first["aside"],
        "put aside, as the rules are now, which have seen them": found["threads"]["aside"],
        "found when the rules stood, as they are now": found["threads"]["later"],
        f"a second lot, when it was opened ({second['date']})": second["second_lot"],
        "the second lot, as the rules are now, which have seen it": found["threads"]["second_lot"],
        f"a third lot, when it was opened ({third['date']})": third["third_lot"],
        "the third lot, as the rules are now, which have seen it": found["threads"]["third_lot"],
        f"a fourth lot, when it was opened ({fourth['date']})": fourth["fourth_lot"],
        "the same, where another name that says the same counts": _as_said(fourth["fourth_lot"], "fourth_lot"),
        "the fourth lot, as the rules are now, which have seen it": found["threads"]["fourth_lot"],
    }
    rows = [[name, len(cases), *_shares([one["told"] for one in cases], TOLD)] for name, cases in groups.items()]
    return table(" | ".join([found["date"], "cases:", *(f"{one}:" for one in TOLD)]), rows)


def _as_said(opened: list[dict[str, Any]], half: str) -> list[dict[str, Any]]:
    """Return what an opening told, by the names that its cases accept now."""
    wanted = {name: set(case["causes"]) for name, case in read_cases(half)}
    return [one | {"told": "right"} if wanted[one["name"]] & set(one["causes"]) else one for one in opened]


def _shares(told: list[str], kinds: tuple[str, ...]) -> list[str]:
    tally = Counter(told)
    return [f"{tally[kind]} ({tally[kind] / len(told):.0%})" for kind in kinds]


def healthy() -> str:
    """Return how many published tables of healthy machines are called normal."""
    found: dict[str, Any] = read_results("diagnosed")
    groups = list(dict.fromkeys(one[0] for one in found["healthy"]))
    rows = []
    for group in groups:
        verdicts = [one[3] for one in found["healthy"] if one[0] == group]
        rows.append([group, len(verdicts), *_shares(verdicts, ("normal",))])
    return table(f"{found['date']} | tables: | called normal:", rows)


PARTS: Parts = {"docs/diagnose.md": {"walked": walked, "threads": threads, "healthy": healthy}}
