"""Schedules of programs that count in rows and columns: the same as every rank's own, and folded at any size."""

from random import Random

import numpy as np
import pytest

from collectives import Request, Transport, find_algorithm
from collectives.catalogue import library
from collectives.declaration import Algorithm
from collectives.schedule.build import build_schedule
from collectives.schedule.symbolic_build import build_by_branch, build_compact, build_symmetric
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.spec import find_spec
from collectives.step import Program, recv, send
from simcomm import Cluster, star, two_level_tree
from simcomm.compiled.engine import by_events, by_quotient, simulate
from simcomm.compiled.planning.engine_input import EngineInput

ON_GRIDS = ["all_reduce/hierarchical", "all_reduce/torus"]
TRANSPORT = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)


def grid(name: str, p: int) -> SymmetricSchedule:
    found = build_symmetric(find_algorithm(name), p, digits=2)
    assert found is not None
    return found


@pytest.mark.parametrize("name", [*ON_GRIDS, "all_reduce/hierarchical[gpus=2]", "all_reduce/torus[columns=2]"])
@pytest.mark.parametrize("p", [4, 6, 8, 12, 16, 20, 36])
def test_a_grid_says_what_every_rank_says(name: str, p: int):
    written = grid(name, p).table()
    asked = build_schedule(find_algorithm(name), p).table()
    for one, other in zip(written.columns, asked.columns, strict=True):
        np.testing.assert_array_equal(one, other)
    at_once = build_by_branch(find_algorithm(name), p)
    assert at_once is not None
    for one, other in zip(at_once.columns, asked.columns, strict=True):
        np.testing.assert_array_equal(one, other)


def test_only_programs_that_count_in_rows_and_columns_are_on_a_grid():
    found = {name: build_symmetric(library()[name], 12, digits=2) for name in library()}
    assert {name for name, one in found.items() if one is not None and not one.is_cyclic} == set(ON_GRIDS)
    assert grid("all_reduce/hierarchical", 13).is_cyclic  # a row of one, thirteen of them


def odd(problem: str) -> Algorithm:
    """An exchange within rows of four and then within columns, with something wrong."""

    def program(rank: int, world_size: int) -> Program:
        row, column = divmod(rank, 4)
        rows = world_size // 4
        right, left = row * 4 + (column + 1) % 4, row * 4 + (column - 1) % 4
        down, up = (row + 1) % rows * 4 + column, (row - 1) % rows * 4 + column
        mine = column * rows + row
        yield send(right, mine), recv(left, (column - 1 + int(problem == "place")) % 4 * rows + row)
        if problem == "alone":
            yield (send(down, mine),)
        if problem == "twice":
            yield send(down, mine), recv(up, mine), recv(left, mine), send(right, mine)
        if problem == "outside":
            yield send(down, mine + 4 * rows), recv(up, mine + 4 * rows)
        if problem == "apart":
            yield send(down, mine, 2), recv(up, column * rows + (row - 1) % rows, 2)

    return Algorithm(find_spec("all_reduce"), "odd", program, lambda world_size: world_size, 0)


@pytest.mark.parametrize("problem", ["place", "alone", "twice", "outside", "apart"])
def test_what_would_be_refused_has_no_grid(problem: str):
    assert build_symmetric(odd(""), 12, digits=2) is not None
    assert build_symmetric(odd(problem), 12, digits=2) is None


@pytest.mark.parametrize("name", ON_GRIDS)
@pytest.mark.parametrize("scattered", [False, True])
def test_one_of_each_class_of_a_grid_stands_for_all(name: str, scattered: bool):
    tree = two_level_tree(6, 6, "10 Gbit/s", "5 us", 3.0, transport=TRANSPORT)
    hosts = tuple(Random(1).sample(tree.hosts, 36)) if scattered else tree.hosts
    for cluster in (star(36, "10 Gbit/s", "5 us", TRANSPORT), Cluster("tree", tree.graph, hosts, TRANSPORT)):
        asked = EngineInput(Request(find_algorithm(name), 36 * 2 * 100), grid(name, 36), cluster, TRANSPORT)
        folded, full = by_quotient(asked), by_events(asked)
        assert (folded is None) == (scattered and cluster.title == "tree")
        if folded is not None:
            np.testing.assert_allclose(folded.finished, full.finished, rtol=1e-12)
            assert folded.messages == full.messages
        uneven = EngineInput(Request(find_algorithm(name), 36 * 2 * 100 + 1), asked.schedule, cluster, TRANSPORT)
        assert by_quotient(uneven) is None


@pytest.mark.parametrize("name", ON_GRIDS)
def test_very_many_ranks_are_not_written_down(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SymmetricSchedule, "table", None)
    schedule = build_compact(find_algorithm(name), 16_384)
    assert isinstance(schedule, SymmetricSchedule)
    assert schedule.messages > 8_000_000
    cluster = star(16_384, "100 Gbit/s", "1 us")
    found = simulate(EngineInput(Request(find_algorithm(name), 1 << 24), schedule, cluster, Transport()))
    least = 2 * (1 - 1 / 16_384) * (1 << 26) / 12.5e9
    assert found.method == "quotient"
    if name == "all_reduce/hierarchical":  # no two messages of a rank at a time: steps of latencies, and the bytes
        assert found.elapsed == pytest.approx(schedule.steps * 2e-6 + least, rel=1e-9)
    assert least <= found.elapsed < 2 * least
