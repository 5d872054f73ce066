"""Run several collectives at once on the reference engine. Each rank starts its part when it posts the collective."""

from collections.abc import Iterator
from typing import Any

import simpy

import simcomm
from collectives import find_algorithm
from collectives.step import on_group
from simcomm.cluster.calibrated import resolve_transport
from simcomm.reference.engine import Buffer, Simulation
from simcomm.schedules import verified_schedule

STAR = simcomm.star(4, "8 Gbit/s", "1 us")
Process = Iterator[simpy.Event]


def part(simulation: Simulation, name: str, group: tuple[int, ...], rank: int, index: int) -> Any:
    """Run the part of one rank of a group in a collective on a buffer of one megabyte."""
    schedule = verified_schedule(find_algorithm(name), len(group))
    programs = [on_group(iter(program), group) for program in schedule.programs[group.index(rank)]]
    return simulation.collective(rank, programs, Buffer(schedule.algorithm, len(group), 250_000, 4, None), "sum", index)


def simulate(ranks: Any) -> tuple[float, Simulation]:
    simulation = Simulation(*resolve_transport(STAR))
    return simulation.run(rank(simulation) for rank in ranks), simulation


def test_groups_reduce_in_parallel() -> None:
    def both(rank: int, group: tuple[int, ...], number: int) -> Any:
        return lambda simulation: part(simulation, "all_reduce/ring", group, rank, number)

    elapsed, simulation = simulate(both(rank, group, at) for at, group in enumerate([(0, 2), (1, 3)]) for rank in group)
    assert elapsed == simcomm.run("all_reduce/ring", simcomm.star(2, "8 Gbit/s", "1 us"), nbytes=1_000_000).elapsed
    assert {(message.src, message.dst, message.collective) for message in simulation.messages} == {
        (0, 2, 0), (2, 0, 0), (1, 3, 1), (3, 1, 1)
    }  # fmt: skip
    assert not simulation._waiting


def test_collectives_started_in_different_orders_stay_separate() -> None:
    """Both calls are in flight at once, like asynchronous calls. A send only meets a receive of the same collective."""

    def rank(number: int) -> Any:
        def run(simulation: Simulation) -> Process:
            order = (0, 1) if number == 0 else (1, 0)
            parts = [part(simulation, "all_reduce/ring", (0, 1), number, index) for index in order]
            yield simulation.env.all_of([simulation.env.process(part) for part in parts])

        return run

    _, simulation = simulate(map(rank, range(2)))
    pairs = [(message.collective, message.step, message.dst_step) for message in simulation.messages]
    assert len(pairs) == 8
    assert all(step == dst_step for _, step, dst_step in pairs)
