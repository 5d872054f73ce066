"""What commands that read tables of nccl-tests share: the machine that they were measured on, and skipped rows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from collectives.errors import InputError
from collectives.quoting import MOST_NAMED
from ringlab.table import Line, Part
from scenarios import LoadedScenario
from simcomm.nccl.catalogue import match_gpu
from simcomm.nccl.descriptions import System
from simcomm.nccl.measured.nccl_tests_rows import NcclTestsRun


def system_of_scenario(scenario: LoadedScenario, option: str) -> System:
    """Return the described system of a scenario. Raise InputError where its cluster is not one that NCCL joins.

    >>> from scenarios import load
    >>> system_of_scenario(load("two-p5"), "--measured").ranks
    16
    """
    system = getattr(scenario.cluster, "system", None)
    if not isinstance(system, System):
        raise InputError(f'{scenario.path}: {option} requires a scenario with transport = "nccl"')
    return replace(system, slug=scenario.path.name) if isinstance(scenario.path, Path) else system


def check_gpu(where: Path | str, run: NcclTestsRun, system: System) -> None:
    """Raise InputError where a run names another GPU than a system's; boards of one chip are alike."""
    gpu = match_gpu(run.gpu_name) if run.gpu_name else None
    if gpu is not None and (gpu.generation, gpu.model) != (system.gpu.generation, system.gpu.model):
        raise InputError(
            f"{where}: measured on {run.gpu_name!r}, but {system.slug} has {system.gpu.name}; pass the machine that "
            "was measured"
        )


def show_skipped(reasons: Sequence[str]) -> Iterator[Part]:
    """Yield the rows of a table that were skipped, the first of many."""
    yield from (Line(f"skipped: {reason}", wrap=True) for reason in reasons[:MOST_NAMED])
    if len(reasons) > MOST_NAMED:
        yield f"skipped: {len(reasons) - MOST_NAMED} more rows"
