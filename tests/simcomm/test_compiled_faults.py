"""Both engines agree under faults, message by message."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from compiled_cases import Case, as_algorithm, random_case, random_faults, simulated_by_simpy

import simcomm
from collectives import InputError, Trace, Transport, find_algorithm
from collectives.schedule.build import build_schedule
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import copy, recv, send
from collectives.training.workload import ComputePhases, Training
from simcomm import star
from simcomm.compiled.engine import one_by_one
from simcomm.compiled.traces import make_trace
from simcomm.model.faults import NO_FAULTS, Faults, LinkFault, RankFault
from simcomm.model.jitter import Jitter
from simcomm.reference.engine import make_trace as make_reference_trace

ENGINES = ("simpy", "compiled")
CLOSE, TINY = 1e-9, 1e-150  # an unlimited link takes no time in one engine, and almost none in the other
TIMES = ("begin", "end", "src_posted", "dst_posted", "since")


def both(case: Case, faults: Faults) -> list[Trace]:
    """Return the traces of both engines."""
    simulation, elapsed = simulated_by_simpy(case, faults)
    inputs = case.inputs(faults)
    timing = one_by_one(inputs, messages=True)
    return [make_reference_trace(simulation, case.schedule, elapsed, {}), make_trace(inputs, timing, {})]


def assert_agree(expected: Trace, other: Trace) -> None:
    assert other.is_complete == expected.is_complete
    assert other.elapsed == pytest.approx(expected.elapsed, rel=CLOSE, abs=TINY)
    assert other.failed == expected.failed
    for name in ("messages", "spans", "unfinished"):
        assert_rows(getattr(other, name), getattr(expected, name), expected.elapsed)
    assert [(link[:4], link.rates) for link in other.links] == [(link[:4], link.rates) for link in expected.links]
    assert [link.nbytes for link in other.links] == pytest.approx([link.nbytes for link in expected.links])


def assert_rows(ours: Iterable[Any], theirs: Iterable[Any], elapsed: float) -> None:
    """Check that the rows are equal, and their times within 1e-9 or a small share of the run."""
    tables = [sorted(map(split, rows), key=rounded) for rows in (ours, theirs)]
    assert [values for values, _ in tables[0]] == [values for values, _ in tables[1]]
    times = (np.array([numbers for _, numbers in rows]) for rows in tables)
    np.testing.assert_allclose(*times, rtol=CLOSE, atol=TINY + 1e-12 * elapsed)


def split(row: Any) -> tuple[list[Any], list[float]]:
    """Separate the values of a row from its times."""
    fields = row._asdict()
    return [fields[key] for key in fields if key not in TIMES], [float(fields[key]) for key in fields if key in TIMES]


def rounded(row: tuple[list[Any], list[float]]) -> tuple[Any, ...]:
    return (*row[0], *(float(f"{number:.8e}") for number in row[1]))


def drawn(seed: int, **shared: float) -> tuple[Case, Faults]:
    """Return a random case with faults. ``a_b=rate`` sets the shared bandwidth of a link in bytes/s."""
    random = Random(seed)
    case = random_case(random, random.choice([4, 9, 20]))
    for name, rate in shared.items():
        a, b = name.split("_")
        case.cluster.graph.edges[a, b]["shared_bandwidth"] = rate
    _, longest = simulated_by_simpy(case)
    return case, random_faults(random, case, longest)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_engines_agree_on_seeded_cases(seed: int):
    for number in range(150 if seed else 45):
        assert_agree(*both(*drawn(1_000_000 * seed + number)))


def test_unlimited_link_under_faults_keeps_sums_of_others():
    assert_agree(*both(*drawn(8453, s0_s1=5e8)))  # one case in thousands


STAR = star(6, "10 Gbit/s", "5 us", Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10))
NOISE = Faults(
    (RankFault(1, 1.5),),
    (LinkFault(("h2", "s0"), 0.2),),
    Jitter("exponential", 1e-5),
    Jitter("lognormal", 0.1, 0.2),
    seed=5,
)


@pytest.mark.parametrize("faults", [NOISE, Faults(messages=NOISE.messages), Faults(NOISE.ranks), NO_FAULTS])
def test_engines_agree_on_training_under_faults(faults: Faults):
    training = Training(find_algorithm("all_reduce/ring"), compute=ComputePhases(0.1, 0.2, 0.05))
    simulated, other = (simcomm.train(training, STAR, engine=engine, faults=faults) for engine in ENGINES)
    assert (simulated.engine, other.engine) == ENGINES
    assert_agree(simulated, other)
    times_only = simcomm.train(training, STAR, engine="compiled", faults=faults, record=False)
    assert times_only.elapsed == pytest.approx(simulated.elapsed, rel=CLOSE)


NAMES = ("all_reduce/ring", "all_reduce/double_tree", "all_reduce/unchunked_ring", "reduce/binomial",
    "broadcast/binomial", "all_to_all/pairwise")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_engines_agree_on_library_under_faults(name: str, op: str | None):
    op = op if find_algorithm(name).spec.reduces else None
    for faults in (NO_FAULTS, NOISE, replace(NOISE, ranks=(RankFault(4, 2.0, 3e-5),))):
        simulated, other = (simcomm.run(name, STAR, 4 * 1003, op=op, engine=each, faults=faults) for each in ENGINES)
        assert_agree(simulated, other)
        for key in ("title", "kind", "world_size", "algorithm", "chunks"):
            assert getattr(other, key) == getattr(simulated, key)
        assert other.facts == pytest.approx(simulated.facts, rel=CLOSE)


@pytest.mark.parametrize(("fails_at", "ends"), [(3.5e-3, True), (2.5e-3, False), (1.5e-3, False)])
def test_rank_that_fails_while_reducing_does_not_finish(fails_at: float, ends: bool):
    """Two chunks arrive within 2 ms, and the last step copies them in 1 ms each."""
    programs = [[[(recv(1, 2, 2),), (copy(2, 0), copy(3, 1))]], [[(send(0, 0, 2),)]]]
    cluster = star(2, "1 GB/s", "0 us", Transport("test", overhead=0.0, goodput=1.0, gamma=1e-9))
    case = Case(build_schedule(as_algorithm(programs, 2), 2), cluster, 500_000)
    simulated, other = both(case, Faults((RankFault(0, fails_at=fails_at),)))
    assert simulated.is_complete == ends
    assert_agree(simulated, other)


LARGE = star(256, "10 Gbit/s", "5 us")


@pytest.mark.parametrize(
    "faults",
    [
        Faults((RankFault(3, fails_at=1e-3),)),
        Faults(links=(LinkFault(("h3", "s0"), 0.0),)),
        Faults(links=(LinkFault(("h3", "s0"), 0.5, 1e-3),)),
    ],
)
def test_too_many_messages_are_rejected_before_expansion(faults: Faults, monkeypatch: pytest.MonkeyPatch):
    for limit in ("MESSAGES", "WRITTEN"):
        monkeypatch.setattr(f"collectives.budget.Gigabyte.{limit}", 1000)
    monkeypatch.setattr(SymmetricSchedule, "table", None)
    with pytest.raises(InputError, match=r"its 261,120 messages take too much memory .* the limit is 1,000"):
        simcomm.run("all_reduce/bidirectional_ring", LARGE, 1 << 20, faults=faults, record=False)


def test_too_many_messages_to_record_are_rejected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("collectives.budget.Gigabyte.RECORDED", 1000)
    with pytest.raises(InputError, match="the limit is 1,000"):
        simcomm.run("all_reduce/ring", LARGE, 1 << 20)
    assert simcomm.run("all_reduce/ring", LARGE, 1 << 20, record=False).method == "max-plus"


def test_max_plus_applies_with_a_degraded_link():
    thin = Faults(links=(LinkFault(("h3", "s0"), 0.5), LinkFault(("s0", "h3"), 0.25)))
    quick, full = (
        simcomm.run("all_reduce/ring", LARGE, 1 << 20, faults=thin, record=record, engine="compiled")
        for record in (False, True)
    )
    assert (quick.method, full.method) == ("max-plus", "events")
    assert quick.elapsed == pytest.approx(full.elapsed, rel=CLOSE)
    assert quick.elapsed > 1.5 * simcomm.run("all_reduce/ring", LARGE, 1 << 20, record=False).elapsed
