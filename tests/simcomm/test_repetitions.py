"""Runs repeated with other seeds: how many are needed, and which work they share."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

import simcomm
from collectives import Transport, find_algorithm
from collectives.records.trace import Trace
from collectives.records.waits import Record
from collectives.training.workload import ComputePhases, Training
from simcomm.compiled.planning.engine_input import repetitions
from simcomm.model.faults import Faults, LinkFault, RankFault
from simcomm.model.jitter import Jitter
from simcomm.repetition import is_median_known, repeat

NARROW = Faults(messages=Jitter("uniform", 1e-9), repetitions=1000)
WIDE = Faults(messages=Jitter("exponential", 1e-2), repetitions=31)


@pytest.mark.parametrize(("faults", "runs"), [(NARROW, 20), (WIDE, 31), (replace(NARROW, repetitions=7), 7)])
def test_runs_stop_once_their_median_is_known(faults: Faults, runs: int) -> None:
    star, seeds = simcomm.star(4, "1 GB/s", "1 us"), list[int]()

    def simulate(faults: Faults, record: Record) -> Trace:
        seeds.append(faults.seed)
        return simcomm.run("all_reduce/ring", star, 1 << 16, faults=faults, record=record)

    trace, figures = repeat(faults, star, simulate, lambda each: each.elapsed, record=Record.TIMES)
    assert seeds == list(range(runs))
    assert (figures.repetitions, figures.asked) == (runs, faults.repetitions if runs < faults.repetitions else None)
    assert figures.distribution is not None
    assert figures.distribution.median_s == pytest.approx(trace.elapsed, rel=1e-3 if runs == 20 else 1)


@pytest.mark.parametrize(
    ("times", "is_known"),
    [([inf] * 20, True), ([1.0] * 20 + [inf] * 4, True), ([1.0] * 12 + [inf] * 8, False), ([1.0] * 5, False)],
)
def test_median_may_be_known_although_runs_hang(times: list[float], is_known: bool) -> None:
    assert is_median_known(times) is is_known


@pytest.mark.parametrize(
    "faults",
    [
        Faults(messages=Jitter("exponential", 1e-5)),
        Faults(compute=Jitter("uniform", 0.1), links=(LinkFault(("h1", "s0"), 0.25),)),
        Faults(messages=Jitter("uniform", 1e-6), links=(LinkFault(("h1", "s0"), 0.5, at=1e-5, lasting=1e-5),)),
        Faults(messages=Jitter("uniform", 1e-6), ranks=(RankFault(1, slowdown=2, fails_at=2e-4),)),
    ],
)
@pytest.mark.parametrize("record", [True, False])
def test_repetitions_are_unchanged_by_shared_derived_data(faults: Faults, record: bool) -> None:
    star = simcomm.star(6, "1 GB/s", "1 us", Transport("test", gamma=1e-10))
    training = Training(find_algorithm("all_reduce/double_tree"), compute=ComputePhases(1e-4, 2e-4, 1e-5))

    def simulate(number: int) -> list[dict[str, Any]]:
        options: dict[str, Any] = {"faults": faults.repetition(number), "record": record, "engine": "compiled"}
        runs = [simcomm.run(f"all_reduce/{name}", star, 99_992, **options) for name in ("ring", "double_tree")]
        return [trace.to_dict() for trace in (*runs, simcomm.train(training, star, **options))]

    alone = [simulate(number) for number in range(3)]
    with repetitions():
        assert [simulate(number) for number in range(3)] == alone
