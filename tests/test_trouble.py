"""What-ifs on either engine: slow and failing ranks, thin, flapping and dead links, jitter, links of sharing fifo."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives.catalogue import library
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.records.waits import critical_path, waiting_seconds
from collectives.spec import find_spec
from collectives.step import Program, recv, send
from collectives.training.workload import ComputePhases, Training
from collectives.transport import Transport
from simcomm import Cluster, star
from simcomm.hashing import UNIT
from simcomm.model.jitter import SCIPY_FROM, Jitter, uniform
from simcomm.model.sharing import fifo
from simcomm.model.trouble import LinkTrouble, RankTrouble, Trouble
from simcomm.reference.network import Flow

RATE = 1e9  # bytes/s of every link
MEGABYTE = 1_000_000  # 1 ms on a link
RANKS = 4


@pytest.fixture(autouse=True, scope="module", params=["simpy", "compiled"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """The engine that is chosen unless one is asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simcomm.time_models.options.SIMPY_UP_TO", inf if request.param == "simpy" else -1)
        yield request.param


def test_the_engine_is_the_one_meant(engine: str):
    assert simcomm.run("all_reduce/ring", cluster(), 4).engine == engine


def cluster(ranks: int = RANKS, gamma: float = 0.0) -> Cluster:
    return star(ranks, "1 GB/s", "0 us", Transport(gamma=gamma))


def seconds(trouble: Trouble, algorithm: str = "broadcast/binomial", ranks: int = 2) -> float:
    return simcomm.run(algorithm, cluster(ranks), MEGABYTE, trouble=trouble).elapsed


def thin(share: float, at: float = 0.0, lasting: float = inf, every: float = inf) -> Trouble:
    return Trouble(links=(LinkTrouble(("s0", "h1"), share, at, lasting, every),))


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (thin(1.0), 1e-3),
        (thin(0.25), 4e-3),
        (thin(0.5, at=0.5e-3), 1.5e-3),  # half at full speed, half at half of it
        (thin(0.5, at=0.25e-3, lasting=0.5e-3), 1.25e-3),
        (thin(0.0, at=0.25e-3, lasting=2e-3), 3e-3),  # down for 2 ms
        (thin(0.0, lasting=0.3e-3, every=0.6e-3), 2.2e-3),  # up 3 x 0.3 ms and 0.1 ms
        (thin(0.5, at=1e-3), 1e-3),  # too late to matter
        (Trouble(links=(*thin(0.5).links, *thin(0.25, at=0.5e-3, lasting=1e-3).links)), 2.5e-3),  # the worst counts
    ],
)
def test_a_link_with_less_bandwidth_for_a_while(trouble: Trouble, expected: float):
    assert seconds(trouble) == pytest.approx(expected, rel=1e-12)


def test_trouble_elsewhere_changes_nothing():
    elsewhere = Trouble(links=(LinkTrouble(("h3", "s0"), 0.1),))
    flow = simcomm.run("broadcast/naive", cluster(3), MEGABYTE)
    beside = simcomm.run("broadcast/naive", replace(cluster(4), hosts=("h0", "h1", "h2")), MEGABYTE, trouble=elsewhere)
    assert flow.elapsed == beside.elapsed


def test_a_slow_rank_takes_longer_to_reduce():
    plain = simcomm.run("reduce/naive", cluster(2, gamma=1e-9), MEGABYTE)
    assert plain.elapsed == pytest.approx(2e-3)
    slow = simcomm.run("reduce/naive", cluster(2, 1e-9), MEGABYTE, trouble=Trouble((RankTrouble(0, 3.0),)))
    assert slow.elapsed == pytest.approx(4e-3)


def training(compute: ComputePhases = ComputePhases(1e-3, 2e-3, 0.5e-3)) -> Training:  # noqa: B008
    return Training(library()["all_reduce/ring"], compute=compute)


def test_all_ranks_wait_for_the_slow_one():
    trace = simcomm.train(training(), cluster(), steps=2, trouble=Trouble((RankTrouble(2, 2.0),)))
    waited = waiting_seconds(trace)
    assert max(waited, key=lambda pair: waited[pair])[1] == 2
    assert sum(s for (_, late), s in waited.items() if late == 2) > 0.9 * sum(waited.values()) / 2
    on_path = [leg for leg in critical_path(trace) if leg.name in ("forward", "backward", "optimizer")]
    assert {leg.src for leg in on_path[:-1]} == {2}


@pytest.mark.parametrize("algorithm", ["all_reduce/ring", "all_reduce/binomial", "all_reduce/double_tree"])
def test_the_critical_path_explains_the_whole_time(algorithm: str):
    trouble = Trouble(messages=Jitter("exponential", 20e-6), seed=3)
    trace = simcomm.run(algorithm, cluster(gamma=1e-10), MEGABYTE, trouble=trouble)
    path = critical_path(trace)
    assert path[0].begin == 0
    assert path[-1].end == trace.elapsed
    assert all(leg.end == following.begin for leg, following in pairwise(path))


def test_a_dead_link_stops_everyone_who_needs_it():
    trace = simcomm.run("all_reduce/ring", cluster(), MEGABYTE, trouble=thin(0.0, at=0.3e-3))
    assert not trace.is_complete
    first = trace.unfinished[0]
    assert (first.rank, first.peer, first.is_under_way) == (0, 1, True)
    assert trace.elapsed == pytest.approx(0.3e-3, abs=1e-3)
    assert {one.rank for one in trace.unfinished} == set(range(RANKS))


def test_a_failed_rank_starts_nothing_more():
    trace = simcomm.run("all_reduce/ring", cluster(), MEGABYTE, trouble=Trouble((RankTrouble(1, fails_at=0.3e-3),)))
    assert trace.failed == {1: 0.3e-3}
    assert {(one.rank, one.peer) for one in trace.unfinished} >= {(0, 1), (2, 1)}
    assert not any(one.rank == 1 for one in trace.unfinished)
    assert sum(1 in (m.src, m.dst) for m in trace.messages) == 4  # its first two steps, which were posted


def test_a_rank_that_fails_after_its_end_has_done_no_harm():
    assert simcomm.run("all_reduce/ring", cluster(), 4, trouble=Trouble((RankTrouble(1, fails_at=1.0),))).is_complete


def test_a_link_that_flaps_for_ever_does_not_keep_a_dead_run_alive():
    flapping = LinkTrouble(("h2", "s0"), 0.0, 0.0, 1e-6, 2e-6)
    trouble = Trouble((RankTrouble(1, fails_at=0.0),), (flapping,))
    assert not simcomm.run("broadcast/binomial", cluster(2 + 1), MEGABYTE, trouble=trouble).is_complete


def gather_at_once(rank: int, world_size: int, root: int) -> Program:
    if rank == root:
        yield tuple(recv(peer, peer) for peer in range(world_size) if peer != root)
    else:
        yield (send(root, rank),)


def test_fifo_links_serve_one_message_at_a_time():
    """Two messages at once into one rank: fair, both take 2 ms; one after the other, 1 ms and 2 ms."""
    at_once = Algorithm(find_spec("gather"), "at_once", gather_at_once)
    both = simcomm.run(at_once, cluster(3), 3 * MEGABYTE)
    assert [m.end for m in both.messages] == pytest.approx([2e-3, 2e-3])
    one_by_one = simcomm.run(at_once, replace(cluster(3), sharing="fifo"), 3 * MEGABYTE)
    assert [(m.src, m.end) for m in one_by_one.messages] == [(1, pytest.approx(1e-3)), (2, pytest.approx(2e-3))]


def test_a_message_that_waits_for_its_turn_holds_up_those_behind_it():
    """0 to 2 has h2; 1 to 2 waits for it with h1 taken; so 1 to 3, which came last, waits too."""
    flows = [Flow(links, 1.0, _event(), (0.0, (k,))) for k, links in enumerate([(A, C), (B, C), (B, D)])]
    fifo(flows, dict.fromkeys((A, B, C, D), (5.0, 5.0)))
    assert [flow.rate for flow in flows] == [5.0, 0.0, 0.0]


A, B, C, D = ("h0", "s0"), ("h1", "s0"), ("s0", "h2"), ("s0", "h3")


def _event() -> simpy.Event:
    return simpy.Environment().event()


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["all_reduce/ring", "all_reduce/double_tree", "all_to_all/pairwise", "all_to_all/direct"]),
    st.integers(2, 7),
    st.integers(0, 5),
)
def test_nobody_waits_for_ever_on_fifo_links(algorithm: str, ranks: int, seed: int):
    jitter = Trouble(messages=Jitter("uniform", 1e-3), seed=seed)
    fair = simcomm.run(algorithm, cluster(ranks), ranks * 1000)
    one_by_one = simcomm.run(algorithm, replace(cluster(ranks), sharing="fifo"), ranks * 1000, trouble=jitter)
    assert one_by_one.is_complete
    assert one_by_one.bytes_sent() == fair.bytes_sent()


def test_results_are_right_under_trouble():
    buffers = [np.full(10, float(rank)) for rank in range(RANKS)]
    trouble = Trouble((RankTrouble(0, 2.0),), thin(0.1).links, Jitter("exponential", 1e-3), Jitter("uniform", 0.5))
    simcomm.run("all_reduce/double_tree", cluster(gamma=1e-9), buffers=buffers, trouble=trouble)
    assert all((buffer == 6).all() for buffer in buffers)


@pytest.mark.parametrize(
    "jitter", [Jitter("uniform", 2.0), Jitter("exponential", 2.0), Jitter("lognormal", 2.0, 1.0), Jitter("uniform", 0)]
)
def test_a_distribution_has_its_mean(jitter: Jitter):
    drawn = jitter.quantile(uniform(7, np.arange(200_000)))
    assert drawn.min() >= 0
    assert drawn.mean() == pytest.approx(jitter.mean, rel=0.01)
    if jitter.deviation:
        assert drawn.std() == pytest.approx(jitter.deviation, rel=0.02)


def test_few_numbers_are_drawn_as_many_are():
    jitter, shares = Jitter("lognormal", 2.0, 1.0), uniform(7, np.arange(SCIPY_FROM + 1))
    few = np.concatenate([jitter.quantile(shares[:SCIPY_FROM]), [jitter.quantile(shares[SCIPY_FROM])]])
    np.testing.assert_allclose(few, jitter.quantile(shares), rtol=1e-12)
    ends = np.array([0.0, 1 - UNIT])  # the least and the largest share that is drawn
    assert np.isfinite(jitter.quantile(ends)).all()
    assert np.isfinite(jitter.quantile(np.resize(ends, SCIPY_FROM + 2))).all()


def test_the_same_seed_gives_the_same_run_to_the_last_bit():
    trouble = Trouble(messages=Jitter("lognormal", 1e-4, 1e-4), compute=Jitter("exponential", 0.3), seed=5)
    first, again, other = (
        simcomm.run("all_reduce/ring", cluster(gamma=1e-9), MEGABYTE, trouble=one)
        for one in (trouble, trouble, trouble.repetition(1))
    )
    assert first == again
    assert first.elapsed != other.elapsed
    assert first.elapsed > simcomm.run("all_reduce/ring", cluster(gamma=1e-9), MEGABYTE).elapsed


def test_numbers_have_no_pattern():
    drawn = uniform(0, *np.indices((60, 60, 60)))
    counts = np.histogram(drawn, 100, (0, 1))[0]
    assert abs(counts - drawn.size / 100).max() < 6 * (drawn.size / 100) ** 0.5
    for axis in range(3):
        assert (
            abs(np.corrcoef(drawn.take(range(59), axis).ravel(), drawn.take(range(1, 60), axis).ravel())[0, 1]) < 0.01
        )


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (Trouble((RankTrouble(4),)), "rank 4 is not there; ranks are 0..3"),
        (Trouble((RankTrouble(1, 0.0),)), "slowdown must be above zero"),
        (Trouble(links=(LinkTrouble(("h0", "h1"), 0.5),)), "no link between h0 and h1; h0 is linked to s0"),
        (Trouble(links=(LinkTrouble(("x", "h1"), 0.5),)), "there is no node x"),
        (Trouble(links=(LinkTrouble(("h0", "s0"), 1.5),)), "give a number from 0 .down. to 1"),
        (Trouble(links=(LinkTrouble(("h0", "s0"), 0.5, 0, 2, 1),)), "has to last shorter"),
        (Trouble(repetitions=0), "at least one"),
    ],
)
def test_trouble_that_cannot_be_is_refused(trouble: Trouble, said: str):
    with pytest.raises(InputError, match=said):
        simcomm.run("all_reduce/ring", cluster(), 4, trouble=trouble)


@pytest.mark.parametrize(
    "given", [("gauss", 1.0), ("uniform", -1.0), ("uniform", inf), ("lognormal", 1.0), ("uniform", 1.0, 1.0)]
)
def test_jitter_that_is_none_is_refused(given: tuple[str, float]):
    with pytest.raises(InputError):
        Jitter(*given)


WRONG_TYPES = {
    "rank is '3'; give a whole number": lambda: RankTrouble("3"),
    "fails_at is '5 ms'; give a number of seconds": lambda: RankTrouble(3, fails_at="5 ms"),
    "between is 'h0'; give a pair of nodes": lambda: LinkTrouble("h0", 0.5),
    "share is '50 %'; give a number": lambda: LinkTrouble(("h0", "s0"), "50 %"),
    "at is None; give a number of seconds": lambda: LinkTrouble(("h0", "s0"), 0.5, None),
    "mean is '1 us'; give a number": lambda: Jitter("uniform", "1 us"),
    "distribution 3 is not known": lambda: Jitter(3, 1e-6),
    "give a tuple of RankTrouble": lambda: Trouble(RankTrouble(3, 2.0)),
    "messages is 0.001; give a Jitter, or None": lambda: Trouble(messages=1e-3),
    "seed is '1'; give a whole number from 0 on": lambda: Trouble(seed="1"),
    "repetitions is 2.5; give a whole number": lambda: Trouble(repetitions=2.5),
}


@pytest.mark.parametrize("message", WRONG_TYPES)
def test_trouble_of_a_wrong_type_is_refused(message: str):
    with pytest.raises(InputError) as refusal:
        WRONG_TYPES[message]()
    assert message in str(refusal.value)
