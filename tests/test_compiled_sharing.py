"""At every instant of a run the links are shared fairly and nothing is lost; small cases blown up behave the same."""

from random import Random

import numpy as np
import pytest
from compiled_cases import Case, lifted, random_case
from kernel_invariants import check, check_ends

from simcomm.compiled.engine import simulate
from simcomm.compiled.kernel.event_loop import OVER, advance
from simcomm.compiled.kernel.world import World, new_world
from simcomm.compiled.planning.link_records import make_link_records
from simcomm.compiled.planning.schedule_plan import most_in_flight


def new_run(case: Case) -> World:
    inputs = case.inputs()
    plan, links = inputs.schedule_plan.plan, make_link_records(inputs.routes, inputs.private)
    return new_world(plan, links, most_in_flight(plan), messages=True)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("most_corrections", [0, 1 << 40])
def test_every_instant_is_in_order(seed: int, most_corrections: int):
    world, before, done = new_run(random_case(Random(seed), 20)), 0.0, False
    while not done:
        done = advance(world, 1, most_corrections, np.inf) == OVER
        check(world, before)
        check_ends(world)
        before = float(world.clock[0])
    assert np.isfinite(world.end).all()
    assert (world.links["crossing"] == 0).all()
    assert (world.stages["waiting"][:-1] == 0).all()


def test_the_check_itself_notices_what_is_wrong():
    seed, world = 0, new_run(random_case(Random(0), 20))
    while (world.links["members"] > 1).sum() < 2:
        if advance(world, 1, 1 << 40, np.inf) == OVER:
            seed += 1
            world = new_run(random_case(Random(seed), 20))
    check(world)
    link = int(np.argmax(world.links["members"]))
    for factor, complaint in ((1.1, "carries more than it can"), (0.9, "could be faster")):
        level = world.links["level"][link]
        world.links["level"][link] = factor * level
        with pytest.raises(AssertionError, match=complaint):
            check(world)
        world.links["level"][link] = level
    with pytest.raises(AssertionError, match="ran back"):
        check(world, before=1e9)
    world.links["crossing"][link] += 1
    with pytest.raises(AssertionError, match="lost count"):
        check(world)


@pytest.mark.parametrize("copies", [2, 5])
@pytest.mark.parametrize("seed", range(12))
def test_a_case_blown_up_takes_the_same_time(seed: int, copies: int):
    small = random_case(Random(seed), 12, tree=True)
    large = lifted(small, copies)
    one, other = (simulate(case.inputs(), messages=True) for case in (small, large))
    assert other.elapsed == pytest.approx(one.elapsed, rel=1e-9)
    np.testing.assert_allclose(other.finished, np.repeat(one.finished, copies), rtol=1e-9)
    assert one.times is not None
    assert other.times is not None
    for copy in range(copies):
        mine = other.times.src % copies == copy
        for name in ("begin", "end"):
            ends = zip(*(getattr(other.times, key)[mine] for key in ("src", "dst", "step", "chunk", name)), strict=True)
            wanted = zip(*(getattr(one.times, key) for key in ("src", "dst", "step", "chunk", name)), strict=True)
            found = sorted((a // copies, b // copies, *rest) for a, b, *rest in ends)
            np.testing.assert_allclose(found, sorted(wanted), rtol=1e-9)
