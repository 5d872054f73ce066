"""Runs repeated with other seeds: how many are made, and what they share."""

import math
from dataclasses import replace
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

HARDLY = Faults(messages=Jitter("uniform", 1e-9), repetitions=1000)
WIDELY = Faults(messages=Jitter("exponential", 1e-2), repetitions=31)


@pytest.mark.parametrize(("faults", "runs"), [(HARDLY, 20), (WIDELY, 31), (replace(HARDLY, repetitions=7), 7)])
def test_runs_end_once_their_median_is_known(faults: Faults, runs: int) -> None:
    star, asked = simcomm.star(4, "1 GB/s", "1 us"), list[int]()

    def simulate(faults: Faults, record: Record) -> Trace:
        asked.append(faults.seed)
        return simcomm.run("all_reduce/ring", star, 1 << 16, faults=faults, record=record)

    trace, about = repeat(faults, star, simulate, lambda found: found.elapsed, record=Record.TIMES)
    assert asked == list(range(runs))
    assert (about.repetitions, about.asked) == (runs, faults.repetitions if runs < faults.repetitions else None)
    assert about.distribution is not None
    assert about.distribution.median_s == pytest.approx(trace.elapsed, rel=1e-3 if runs == 20 else 1)


def test_a_median_among_runs_that_never_end_is_known_when_it_cannot_be_another() -> None:
    assert is_median_known([math.inf] * 20)
    assert is_median_known([1.0] * 20 + [math.inf] * 4)
    assert not is_median_known([1.0] * 12 + [math.inf] * 8)
    assert not is_median_known([1.0] * 5)


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
def test_repetitions_that_share_what_is_worked_out_are_the_same_runs(faults: Faults, record: bool) -> None:
    star = simcomm.star(6, "1 GB/s", "1 us", Transport("test", gamma=1e-10))
    training = Training(find_algorithm("all_reduce/double_tree"), compute=ComputePhases(1e-4, 2e-4, 1e-5))

    def three(number: int) -> list[Trace]:
        asked: dict[str, Any] = {"faults": faults.repetition(number), "record": record, "engine": "compiled"}
        runs = [simcomm.run(f"all_reduce/{name}", star, 99_992, **asked) for name in ("ring", "double_tree")]
        return [*runs, simcomm.train(training, star, **asked)]

    alone = [[trace.to_dict() for trace in three(number)] for number in range(3)]
    with repetitions():
        assert [[trace.to_dict() for trace in three(number)] for number in range(3)] == alone
