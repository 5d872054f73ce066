"""Errors of programs are reported with kind, ranks and lines; correct programs have no findings."""

import json
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import pytest
from mistake_corpus import REFUSED, RIGHT, WRONG, CorpusProgram
from virtual_runs import Ran, VirtualRuns
from warm_ranks import run_ranks

ROOT = Path(__file__).parents[2]
ON_REAL_RANKS = Path(__file__).parent / "virtual_programs" / "digested.py"
ON_GLOO = {"unused_head", "head_replaced", "own_group", "peers_crossed"}
SLOW = {"attention_on_shards", "dcp", "fsdp2", "hsdp", "mesh", "tp_sp"}  # their first DTensor takes a second
FIRST = {kind: name for name, program in reversed(WRONG.items()) for kind in program.kinds}.values()  # one per kind


def sample(programs: Iterable[str], usual: Container[str] = (), every: int = 4) -> list[Any]:
    """Return test parameters. All programs are marked slow except each ``every``-th one and those in ``usual``."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW or (bool(at % every) and name not in usual)))
        for at, name in enumerate(programs)
    ]


def run(virtual: VirtualRuns, program: CorpusProgram, folder: Path, is_fixed: bool = False, **options: object) -> Ran:
    settings = {"timing": "recorded", **program.options, **options}
    ran = virtual(program.write(folder, is_fixed), program.ranks, *program.arguments, **settings)
    assert "internal error" not in ran.err, ran.err
    return ran


@pytest.mark.parametrize("name", sample(RIGHT))
def test_correct_program_has_no_findings(virtual: VirtualRuns, name: str, tmp_path: Path) -> None:
    ran = run(virtual, RIGHT[name], tmp_path)
    assert [finding.text for finding in ran.outcome.findings] == []


@pytest.mark.parametrize("name", sample(WRONG, FIRST))
def test_finding_names_ranks_and_lines(virtual: VirtualRuns, name: str, tmp_path: Path) -> None:
    ran = run(virtual, WRONG[name], tmp_path)
    assert WRONG[name].find_missing(ran.outcome.findings) == []
    assert ran.outcome.status == 1
    for finding in ran.outcome.findings:
        lines = finding.text.splitlines()
        assert lines[0].startswith(f"{finding.kind}: ") and "{" not in lines[0]
        assert finding.advice or finding.kind == "exception"


@pytest.mark.parametrize("name", REFUSED)
def test_rejected_program_is_reported_with_reason_and_line(virtual: VirtualRuns, name: str, tmp_path: Path) -> None:
    ran = run(virtual, REFUSED[name], tmp_path)
    assert REFUSED[name].find_missing(ran.outcome.findings) == []


@pytest.mark.parametrize("name", sample(WRONG, every=8))
def test_corrected_program_has_no_findings(virtual: VirtualRuns, name: str, tmp_path: Path) -> None:
    ran = run(virtual, WRONG[name], tmp_path, is_fixed=True)
    assert [finding.text for finding in ran.outcome.findings] == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in ON_GLOO))
        for name, program in WRONG.items()
        if program.ranks and "gpu" not in program.options  # it can run on gloo, and does not start its ranks itself
    ],
)
def test_corrected_program_runs_on_gloo(name: str, tmp_path: Path) -> None:
    program = WRONG[name]
    local_ranks, path = program.options.get("per_node", program.ranks), program.write(tmp_path, is_fixed=True)
    done = run_ranks(program.ranks, tmp_path, ON_REAL_RANKS, local_ranks, path)
    assert [err for status, _, err in done if status] == []
    results = [json.loads(out.splitlines()[-1]) for _, out, _ in done]
    assert [error for error, _ in results] == [""] * program.ranks
    assert all(parameters == results[0][1] for _, parameters in results)


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_correct_program_has_no_findings_with_live_timing(virtual: VirtualRuns, name: str, tmp_path: Path) -> None:
    assert [finding.text for finding in run(virtual, RIGHT[name], tmp_path, timing="live").outcome.findings] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_finding_names_ranks_and_lines_with_live_timing(virtual: VirtualRuns, name: str, tmp_path: Path) -> None:
    assert WRONG[name].find_missing(run(virtual, WRONG[name], tmp_path, timing="live").outcome.findings) == []


def test_checks_page_lists_every_kind_of_finding(virtual: VirtualRuns) -> None:
    page = (ROOT / "docs" / "reference" / "checks.md").read_text()
    rows = [row.split("|")[1] for row in page.splitlines() if row.startswith("| ") and not row.startswith("| kind")]
    kinds = {kind.strip() for row in rows for kind in row.split(",") if kind.strip(" -")}
    assert kinds == {kind for program in WRONG.values() for kind in program.kinds}
    (finding,) = virtual(ROOT / "examples" / "uneven_batches.py", 4, timing="live").outcome.findings
    assert f"```\n{finding.text}\n```" in (ROOT / "docs" / "tutorials" / "find-a-hang.md").read_text()


@pytest.mark.parametrize("name", ["send_round", "unequal_batches"])
def test_trace_of_a_hang_ends_at_the_blocked_calls(virtual: VirtualRuns, name: str, tmp_path: Path) -> None:
    ran = run(virtual, WRONG[name], tmp_path, timing="live")
    assert ran.trace is not None and ran.trace.failure is not None
    assert ran.trace.failure.circle == ((0, 1, 2) if name == "send_round" else ())
    assert ran.trace.failure.text.endswith(ran.outcome.findings[0].title)
    assert {span.rank for span in ran.trace.spans} == {0, 1, 2}
    waits = [(operation.rank, operation.peer, operation.sends) for operation in ran.trace.unfinished]
    assert waits == ([(0, 1, True), (1, 2, True), (2, 0, True)] if name == "send_round" else [])
