"""Message end times of both engines match SimGrid's flow model within 1e-9, on hundreds of random cases.

SimGrid's times are committed (oracle/simgrid_cases.json, made by oracle/make_simgrid_cases.py), so SimGrid is not
needed. If it is installed, some cases are simulated again.
"""

from collections.abc import Callable

import pytest
from oracle.cases import Case, read_cases, sent
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
EACH = [
    pytest.param(case, engine, id=f"{case}-{engine}", marks=[pytest.mark.slow] * (engine == "simpy" and number % 3 > 0))
    for number, case in enumerate(CASES)
    for engine in ENGINES
]


@pytest.mark.parametrize(("case", "engine"), EACH)  # all on the compiled engine, a third on the slower one
def test_message_end_times_match_simgrid(case: Case, engine: str) -> None:
    messages = ENGINES[engine](case)
    ours = {(m.src, m.dst, m.channel, m.step, m.chunk): m for m in messages}
    theirs = list(sent(case.schedule, case.nbytes))
    assert len(ours) == len(messages) and len(theirs) == len(case.ends)
    assert {place: m.nbytes for place, m in ours.items()} == {message.place: message.nbytes for message in theirs}
    ends = [ours[message.place].end for message in theirs]
    assert all(abs(end - expected) <= TOLERANCE * expected for end, expected in zip(ends, case.ends, strict=True))


def test_committed_simgrid_cases_come_from_its_flow_model() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 300
    assert MADE_BY["own_latencies"]["network/model"] == MADE_BY["by_factor"]["network/model"] == "CM02"


def test_installed_simgrid_reproduces_the_committed_results() -> None:
    if why_not():
        pytest.skip(f"{why_not()}; its committed answers are compared nevertheless")
    with simgrid() as runner:
        for case in CASES[:: len(CASES) // 12]:
            again = answered(runner, case, by_factor=not has_equal_latencies(case))
            assert again.ends == pytest.approx(case.ends, rel=1e-12)
