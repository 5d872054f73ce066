"""Whatever goes wrong, both engines agree on it, message by message; at every instant links are shared fairly."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from compiled_cases import Case, as_algorithm, lifted, random_case, random_faults, simulated_by_simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_invariants import check, check_ends

import simcomm
from collectives import InputError, Trace, Transport, find_algorithm
from collectives.schedule.build import build_schedule
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import copy, recv, send
from collectives.training.workload import ComputePhases, Training
from simcomm import star
from simcomm.compiled.engine import one_by_one
from simcomm.compiled.kernel.event_loop import OVER, advance, change_bandwidth
from simcomm.compiled.kernel.world import World, new_world
from simcomm.compiled.planning.faults import link_changes, link_records_of, plan_with_faults
from simcomm.compiled.planning.link_records import make_link_records
from simcomm.compiled.traces import make_trace
from simcomm.model.faults import NO_FAULTS, Faults, LinkFault, RankFault
from simcomm.model.jitter import Jitter
from simcomm.reference.engine import make_trace as make_reference_trace

ENGINES = ("simpy", "compiled")
CLOSE, TINY = 1e-9, 1e-150  # an infinitely wide link takes no time in one engine, and next to none in the other
TIMES = ("begin", "end", "src_posted", "dst_posted", "since")


def both(case: Case, faults: Faults) -> list[Trace]:
    """What each engine records."""
    simulation, elapsed = simulated_by_simpy(case, faults)
    inputs = case.inputs(faults)
    timing = one_by_one(inputs, messages=True)
    return [make_reference_trace(simulation, case.schedule, elapsed, {}), make_trace(inputs, timing, {})]


def assert_agree(one: Trace, other: Trace) -> None:
    assert other.is_complete == one.is_complete
    assert other.elapsed == pytest.approx(one.elapsed, rel=CLOSE, abs=TINY)
    assert other.failed == one.failed
    assert_rows(other.messages, one.messages, one.elapsed)
    assert_rows(other.spans, one.spans, one.elapsed)
    assert_rows(other.unfinished, one.unfinished, one.elapsed)
    assert [link[:4] for link in other.links] == [link[:4] for link in one.links]
    assert [link.rates for link in other.links] == [link.rates for link in one.links]
    assert [link.nbytes for link in other.links] == pytest.approx([link.nbytes for link in one.links])


def assert_rows(found: Iterable[Any], wanted: Iterable[Any], elapsed: float) -> None:
    """The same things at the same times: begin and end to a relative 1e-9; waits to a small share of the whole."""
    ours, theirs = (sorted(map(split, rows), key=rounded) for rows in (found, wanted))
    assert [names for names, _ in ours] == [names for names, _ in theirs]
    times = [np.array([numbers for _, numbers in rows]) for rows in (ours, theirs)]
    np.testing.assert_allclose(*times, rtol=CLOSE, atol=TINY + 1e-12 * elapsed)


def split(row: Any) -> tuple[list[Any], list[float]]:
    """What a row says, and when."""
    said = row._asdict()
    return [said[key] for key in said if key not in TIMES], [float(said[key]) for key in said if key in TIMES]


def rounded(row: tuple[list[Any], list[float]]) -> tuple[Any, ...]:
    return (*row[0], *(float(f"{number:.8e}") for number in row[1]))


@given(random=st.randoms(use_true_random=False), most_ranks=st.sampled_from([4, 9, 20]), is_fifo=st.booleans())
@settings(max_examples=50, deadline=None)
def test_random_programs_in_random_trouble(random: Random, most_ranks: int, is_fifo: bool):
    case = random_case(random, most_ranks)
    case = replace(case, cluster=replace(case.cluster, sharing="fifo" if is_fifo else "fair"))
    give_time_to_all(case)
    _, longest = simulated_by_simpy(case)
    assert_agree(*both(case, random_faults(random, case, longest)))


def give_time_to_all(case: Case) -> None:
    """Let no message take no time at all, which in one engine is none and in the other 1e-195 s.

    Between the two a rank may fail; and of two that come together but for rounding, one is over before the other is
    there, or waits behind it. Links without limit are in the cases of ``drawn``, whose times are no such extremes.
    """
    for _, _, link in case.cluster.graph.edges(data=True):
        link["bandwidth"] = min(link["bandwidth"], 1e12)


def drawn(seed: int, **odd: float) -> tuple[Case, Faults]:
    """A case and faults; links written as "a_b" share ``odd`` bytes/s if they share."""
    random = Random(seed)
    case = random_case(random, random.choice([4, 9, 20]))
    for name, shared in odd.items():
        a, b = name.split("_")
        case.cluster.graph.edges[a, b]["shared_bandwidth"] = shared
    case = replace(case, cluster=replace(case.cluster, sharing=random.choice(["fair", "fifo"])))
    _, longest = simulated_by_simpy(case)
    return case, random_faults(random, case, longest)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_many_more(seed: int):
    for number in range(150 if seed else 50):
        assert_agree(*both(*drawn(1_000_000 * seed + number)))


def test_a_link_without_limit_for_one_message_does_not_spoil_the_sums_of_others():
    assert_agree(*both(*drawn(8453, s0_s1=5e8)))  # one case in thousands


@pytest.mark.parametrize("seed", range(30))
def test_every_instant_is_in_order_while_links_change(seed: int):
    random = Random(seed)
    case = random_case(random, 12)
    case = replace(case, cluster=replace(case.cluster, sharing=("fair", "fifo")[seed % 2]))
    _, longest = simulated_by_simpy(case)
    faults = random_faults(random, case, longest)
    inputs = case.inputs(faults)
    links, plan = link_records_of(inputs), plan_with_faults(inputs)
    world, before = new_world(plan, links, messages=True), 0.0
    for change in islice(link_changes(inputs.faults, inputs.cluster.graph, links), 20):
        before = go_on(world, before, change.time)
        world.clock[0] = max(before, change.time)
        change_bandwidth(world, change, 1 << 40)
        check(world, before)
    go_on(world, before, inf)


def go_on(world: World, before: float, until: float) -> float:
    """The time of the last instant, all of which were in order."""
    clock = None
    while clock != world.clock[0]:
        clock = float(world.clock[0])
        done = advance(world, 1, 1 << 40, until) == OVER
        check(world, before)
        before = float(world.clock[0])
        if done:
            break
    return before


def test_the_check_notices_a_flow_that_jumps_its_queue():
    for seed in range(100):
        case = random_case(Random(seed), 20)
        case = replace(case, cluster=replace(case.cluster, sharing="fifo"))
        inputs = case.inputs()
        plan = plan_with_faults(inputs)
        world = new_world(plan, link_records_of(inputs), messages=True)
        while advance(world, 1, 1 << 40, inf) != OVER:
            behind = np.flatnonzero((world.chain["before"] >= 0) & (world.chain["after"] >= 0))
            queued = [link for link in world.links if link["front"] != link["back"]]
            if queued and len(behind) == 0:
                flow = int(queued[0]["back"]) // (len(world.chain) // len(world.flows))
                check(world)
                world.flows["until"][flow] = 1e9
                with pytest.raises(AssertionError, match="one behind it goes"):
                    check(world)
                return
    raise AssertionError("no queue was found")


STAR = star(6, "10 Gbit/s", "5 us", Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10))
NOISE = Faults(
    (RankFault(1, 1.5),),
    (LinkFault(("h2", "s0"), 0.2),),
    Jitter("exponential", 1e-5),
    Jitter("lognormal", 0.1, 0.2),
    seed=5,
)


@pytest.mark.parametrize("faults", [NOISE, Faults(messages=NOISE.messages), Faults(NOISE.ranks), NO_FAULTS])
@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_training_is_the_same_in_trouble(faults: Faults, sharing: Any):
    asked = Training(find_algorithm("all_reduce/ring"), compute=ComputePhases(0.1, 0.2, 0.05))
    cluster = replace(STAR, sharing=sharing)
    one, other = (simcomm.train(asked, cluster, engine=engine, faults=faults) for engine in ENGINES)
    assert (one.engine, other.engine) == ENGINES
    assert_agree(one, other)
    alone = simcomm.train(asked, cluster, engine="compiled", faults=faults, record=False)
    assert alone.elapsed == pytest.approx(one.elapsed, rel=CLOSE)


OF_ALL = ("title", "kind", "world_size", "algorithm", "chunks")
NAMES = ("all_reduce/ring", "all_reduce/double_tree", "all_reduce/unchunked_ring", "reduce/binomial",
    "broadcast/binomial", "all_to_all/pairwise")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_the_library_with_and_without_trouble(name: str, op: str | None):
    op = op if find_algorithm(name).spec.reduces else None
    for faults in (NO_FAULTS, NOISE, replace(NOISE, ranks=(RankFault(4, 2.0, 3e-5),))):
        one, other = (simcomm.run(name, STAR, 4 * 1003, op=op, engine=each, faults=faults) for each in ENGINES)
        assert_agree(one, other)
        assert [getattr(other, key) for key in OF_ALL] == [getattr(one, key) for key in OF_ALL]
        assert other.facts == pytest.approx(one.facts, rel=CLOSE)


def test_a_rank_that_fails_while_it_reduces_has_not_ended():
    """Two chunks come in 2 ms, and in its last step it copies them in 1 ms each."""
    programs = [[[(recv(1, 2, 2),), (copy(2, 0), copy(3, 1))]], [[(send(0, 0, 2),)]]]
    transport = Transport("test", overhead=0.0, goodput=1.0, gamma=1e-9)
    cluster = star(2, "1 GB/s", "0 us", transport)
    case = Case(build_schedule(as_algorithm(programs, 2), 2), cluster, 500_000)
    for fails_at, ends in ((3.5e-3, True), (2.5e-3, False), (1.5e-3, False)):
        one, other = both(case, Faults((RankFault(0, fails_at=fails_at),)))
        assert one.is_complete == ends
        assert_agree(one, other)


def test_what_never_ends_is_told_without_a_record_too():
    for faults in (Faults((RankFault(4, fails_at=3e-5),)), Faults(links=(LinkFault(("h2", "s0"), 0.0),))):
        found = simcomm.run("all_reduce/ring", STAR, 12_000, engine="compiled", faults=faults, record=False)
        assert not found.is_complete
        assert found.unfinished


RACKS = star(256, "10 Gbit/s", "5 us")


@pytest.mark.parametrize(
    "faults",
    [
        Faults((RankFault(3, fails_at=1e-3),)),
        Faults(links=(LinkFault(("h3", "s0"), 0.0),)),
        Faults(links=(LinkFault(("h3", "s0"), 0.5, 1e-3),)),
    ],
)
def test_more_messages_than_fit_are_refused_before_they_are_written_down(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("collectives.budget.Gigabyte.MESSAGES", 1000)
    monkeypatch.setattr("collectives.budget.Gigabyte.WRITTEN", 1000)
    monkeypatch.setattr(SymmetricSchedule, "table", None)
    with pytest.raises(InputError, match=r"its 261,120 messages would have to be simulated .* up to 1,000 will do"):
        simcomm.run("all_reduce/bidirectional_ring", RACKS, 1 << 20, faults=faults, record=False)


def test_a_record_of_more_messages_than_fit_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("collectives.budget.Gigabyte.RECORDED", 1000)
    with pytest.raises(InputError, match="up to 1,000 will do"):
        simcomm.run("all_reduce/ring", RACKS, 1 << 20)
    assert simcomm.run("all_reduce/ring", RACKS, 1 << 20, record=False).method == "max-plus"


def test_a_link_that_is_thin_all_the_time_leaves_the_shortcuts():
    thin = Faults(links=(LinkFault(("h3", "s0"), 0.5), LinkFault(("s0", "h3"), 0.25)))
    quick, full = (
        simcomm.run("all_reduce/ring", RACKS, 1 << 20, faults=thin, record=record, engine="compiled")
        for record in (False, True)
    )
    assert (quick.method, full.method) == ("max-plus", "events")
    assert quick.elapsed == pytest.approx(full.elapsed, rel=CLOSE)
    assert quick.elapsed > 1.5 * simcomm.run("all_reduce/ring", RACKS, 1 << 20, record=False).elapsed
    down = simcomm.run("all_reduce/ring", RACKS, 1 << 20, faults=Faults(links=(LinkFault(("h3", "s0"), 0.0),)))
    assert not down.is_complete


def new_run(case: Case) -> World:
    inputs = case.inputs()
    plan, links = inputs.schedule_plan.plan, make_link_records(inputs.routes, inputs.private)
    return new_world(plan, links, messages=True)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("most_corrections", [0, 1 << 40])
def test_every_instant_is_in_order(seed: int, most_corrections: int):
    world, before, done = new_run(random_case(Random(seed), 20)), 0.0, False
    while not done:
        done = advance(world, 1, most_corrections, inf) == OVER
        check(world, before)
        check_ends(world)
        before = float(world.clock[0])
    assert np.isfinite(world.end).all()
    assert (world.links["crossing"] == 0).all()
    assert (world.stages["waiting"][:-1] == 0).all()


def test_the_check_itself_notices_what_is_wrong():
    seed, world = 0, new_run(random_case(Random(0), 20))
    while (world.links["members"] > 1).sum() < 2:
        if advance(world, 1, 1 << 40, inf) == OVER:
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
    one, other = (one_by_one(case.inputs(), messages=True) for case in (small, large))
    assert other.elapsed == pytest.approx(one.elapsed, rel=1e-9)
    np.testing.assert_allclose(other.finished, np.repeat(one.finished, copies), rtol=1e-9)
    assert one.times is not None
    assert other.times is not None
    for number in range(copies):
        mine = other.times.src % copies == number
        for name in ("begin", "end"):
            ends = zip(*(getattr(other.times, key)[mine] for key in ("src", "dst", "step", "chunk", name)), strict=True)
            wanted = zip(*(getattr(one.times, key) for key in ("src", "dst", "step", "chunk", name)), strict=True)
            found = sorted((a // copies, b // copies, *rest) for a, b, *rest in ends)
            np.testing.assert_allclose(found, sorted(wanted), rtol=1e-9)
