"""The engines against the flow model of SimGrid: hundreds of random cases, every message's end to a relative 1e-9.

SimGrid's answers are committed (oracle/simgrid_cases.json, made by oracle/make_simgrid_cases.py), so that it need not
be there. Where it is, some are asked for again, and some new ones.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from oracle import draw
from oracle.cases import Case, channels_of, read_cases, sent, text_of
from oracle.run_simgrid import answered, has_equal_latencies, simgrid, why_not

from collectives import CollectiveCall, Message
from simcomm.compiled.engine import one_by_one
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.traces import make_trace
from simcomm.reference.engine import Buffer, Simulation

TOLERANCE = 1e-9
MADE_BY, CASES = read_cases()


def on_simpy(case: Case) -> list[Message]:
    cluster, schedule = case.cluster, case.schedule
    assert cluster.transport is not None
    simulation = Simulation(cluster, cluster.transport)
    buffer = Buffer(schedule.algorithm, schedule.world_size, case.nbytes, itemsize=1, data=None)
    simulation.run(
        simulation.collective(rank, programs, buffer, "sum") for rank, programs in enumerate(schedule.programs)
    )
    return simulation.messages


def on_compiled(case: Case) -> list[Message]:
    assert case.cluster.transport is not None
    call = CollectiveCall(case.schedule.algorithm, case.nbytes, dtype="uint8")
    inputs = EngineInput(call, case.schedule, case.cluster, case.cluster.transport)
    return list(make_trace(inputs, one_by_one(inputs, messages=True), {}).messages)


ENGINES: dict[str, Callable[[Case], list[Message]]] = {"simpy": on_simpy, "compiled": on_compiled}


def differences(case: Case, messages: list[Message]) -> list[str]:
    """What an engine says otherwise than SimGrid, in words; nothing when they agree."""
    ours = {(m.src, m.dst, m.channel, m.step, m.chunk): m for m in messages}
    theirs = list(sent(case.schedule, case.nbytes))
    assert len(ours) == len(messages)
    assert len(theirs) == len(case.ends), "this case has other messages than when it was made; make the cases anew"
    assert {place: m.nbytes for place, m in ours.items()} == {message.place: message.nbytes for message in theirs}
    return [
        f"message {message.place} is through at {ours[message.place].end!r}, says SimGrid {end!r}"
        for message, end in zip(theirs, case.ends, strict=True)
        if not abs(ours[message.place].end - end) <= TOLERANCE * end
    ]


EACH = [
    pytest.param(case, engine, id=f"{case}-{engine}", marks=[pytest.mark.slow] * (engine == "simpy" and number % 3 > 0))
    for number, case in enumerate(CASES)
    for engine in ENGINES
]


@pytest.mark.parametrize(("case", "engine"), EACH)  # all by the compiled engine, a third by the slower one too
def test_every_message_is_through_when_simgrid_says(case: Case, engine: str) -> None:
    assert not differences(case, ENGINES[engine](case))


def test_the_comparison_notices_two_parts_in_a_billion() -> None:
    case = CASES[0]
    messages = on_simpy(case)
    late = messages[0]._replace(end=messages[0].end * (1 + 2e-9))
    assert len(differences(case, [late, *messages[1:]])) == 1


def test_the_cases_are_many_and_different() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 300
    assert {case.algorithm for case in CASES} >= set(draw.COLLECTIVES)
    for network in draw.NETWORKS:
        assert sum(case.name.endswith(f"-{network.__name__}") for case in CASES) >= 10
    assert sum(has_equal_latencies(case) for case in CASES) >= 100
    assert sum(not has_equal_latencies(case) for case in CASES) >= 100
    assert sum("|" in "".join(case.programs) for case in CASES) >= 20
    assert all(case.ends and all(0 < end < 100 for end in case.ends) for case in CASES)
    assert MADE_BY["own_latencies"]["network/model"] == MADE_BY["by_factor"]["network/model"] == "CM02"


def test_programs_are_read_as_they_were_written() -> None:
    for case in CASES:
        assert [text_of(channels_of(text, case.chunks)) for text in case.programs] == case.programs, case.name


@pytest.fixture(scope="module")
def runner() -> Iterator[Path]:
    """SimGrid, compiled; skips where it is not."""
    if why_not():
        pytest.skip(f"{why_not()}; its committed answers are compared nevertheless")
    with simgrid() as path:
        yield path


@pytest.mark.parametrize("case", CASES[:: len(CASES) // 12], ids=str)
def test_simgrid_still_says_what_it_said(case: Case, runner: Path) -> None:
    again = answered(runner, case, by_factor=not has_equal_latencies(case))
    assert again.ends == pytest.approx(case.ends, rel=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", [draw.flow_set, draw.step_programs, draw.collective, draw.exchange])
@pytest.mark.parametrize("seed", ["one", "two", "three"])
def test_it_says_what_we_say_of_new_cases(
    make: Callable[[Random, int], Case], seed: str, engine: str, runner: Path
) -> None:
    case = make(Random(seed), 0)
    case = answered(runner, case, by_factor=not has_equal_latencies(case))
    assert not differences(case, ENGINES[engine](case))
