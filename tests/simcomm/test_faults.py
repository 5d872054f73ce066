"""Closed forms of faults: slow and failing ranks, degraded and dead links, and jitter."""

import re
from math import inf

import numpy as np
import pytest

import simcomm
from collectives.errors import InputError
from collectives.transport import Transport
from simcomm import Cluster, star
from simcomm.model.faults import Faults, Jitter, LinkFault, RankFault

MEGABYTE = 1_000_000  # takes 1 ms on a link of 1 GB/s
RANKS = 4


def cluster(ranks: int = RANKS, gamma: float = 0.0) -> Cluster:
    return star(ranks, "1 GB/s", "0 us", Transport(gamma=gamma))


def degraded_link(share: float, at: float = 0.0, lasting: float = inf) -> Faults:
    return Faults(links=(LinkFault(("s0", "h1"), share, at, lasting),))


FLAPPING = Faults(links=tuple(LinkFault(("s0", "h1"), 0.0, number * 0.6e-3, 0.3e-3) for number in range(4)))


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (degraded_link(1.0), 1e-3),
        (degraded_link(0.25), 4e-3),
        (degraded_link(0.5, at=0.5e-3), 1.5e-3),  # first half at full speed, second half at half speed
        (degraded_link(0.5, at=0.25e-3, lasting=0.5e-3), 1.25e-3),
        (degraded_link(0.0, at=0.25e-3, lasting=2e-3), 3e-3),  # down for 2 ms
        (FLAPPING, 2.2e-3),  # up for 3 x 0.3 ms and 0.1 ms
        (degraded_link(0.5, at=1e-3), 1e-3),  # begins after the run has ended
        (
            Faults(links=(*degraded_link(0.5).links, *degraded_link(0.25, at=0.5e-3, lasting=1e-3).links)),
            2.5e-3,
        ),  # the worst fault wins
    ],
)
def test_degraded_link_delays_message(faults: Faults, expected: float):
    elapsed = simcomm.run("broadcast/binomial", cluster(2), MEGABYTE, faults=faults).elapsed
    assert elapsed == pytest.approx(expected, rel=1e-12)


def test_slow_rank_takes_longer_to_reduce():
    slow = Faults((RankFault(0, 3.0),))
    assert simcomm.run("reduce/naive", cluster(2, 1e-9), MEGABYTE).elapsed == pytest.approx(2e-3)
    assert simcomm.run("reduce/naive", cluster(2, 1e-9), MEGABYTE, faults=slow).elapsed == pytest.approx(4e-3)


def test_dead_link_blocks_dependent_ranks():
    trace = simcomm.run("all_reduce/ring", cluster(), MEGABYTE, faults=degraded_link(0.0, at=0.3e-3))
    assert not trace.is_complete
    first = trace.unfinished[0]
    assert (first.rank, first.peer, first.is_under_way) == (0, 1, True)
    assert trace.elapsed == pytest.approx(0.3e-3, abs=1e-3)
    assert {operation.rank for operation in trace.unfinished} == set(range(RANKS))


def test_failed_rank_starts_no_operations():
    trace = simcomm.run("all_reduce/ring", cluster(), MEGABYTE, faults=Faults((RankFault(1, fails_at=0.3e-3),)))
    assert trace.failed == {1: 0.3e-3}
    assert {(operation.rank, operation.peer) for operation in trace.unfinished} >= {(0, 1), (2, 1)}
    assert not any(operation.rank == 1 for operation in trace.unfinished)
    assert sum(1 in (m.src, m.dst) for m in trace.messages) == 4  # the two steps that it posted before it failed


def test_reduction_is_correct_with_faults():
    buffers = [np.full(10, float(rank)) for rank in range(RANKS)]
    faults = Faults((RankFault(0, 2.0),), degraded_link(0.1).links, Jitter("exponential", 1e-3), Jitter("uniform", 0.5))
    simcomm.run("all_reduce/double_tree", cluster(gamma=1e-9), buffers=buffers, faults=faults)
    assert all((buffer == 6).all() for buffer in buffers)


@pytest.mark.parametrize("distribution", ["uniform", "exponential"])
def test_jitter_has_the_stated_mean(distribution: str):
    drawn = Jitter(distribution, 2.0).draw(7, np.arange(200_000))
    assert drawn.min() >= 0
    assert drawn.mean() == pytest.approx(2.0, rel=0.01)


def test_same_seed_reproduces_run_exactly():
    faults = Faults(messages=Jitter("uniform", 1e-4), compute=Jitter("exponential", 0.3), seed=5)
    first, again, other = (
        simcomm.run("all_reduce/ring", cluster(gamma=1e-9), MEGABYTE, faults=each)
        for each in (faults, faults, faults.repetition(1))
    )
    assert first == again
    assert first.elapsed != other.elapsed
    assert first.elapsed > simcomm.run("all_reduce/ring", cluster(gamma=1e-9), MEGABYTE).elapsed


WRONG = {
    "rank 4 does not exist; ranks are 0 to 3": lambda: Faults((RankFault(4),)),
    "slowdown must be positive and finite, not 0.0": lambda: Faults((RankFault(1, 0.0),)),
    "no link between h0 and h1; h0 is linked to s0": lambda: Faults(links=(LinkFault(("h0", "h1"), 0.5),)),
    "`share` must be between 0 (down) and 1, not 1.5": lambda: Faults(links=(LinkFault(("h0", "s0"), 1.5),)),
    "repetitions must be at least 1, not 0": lambda: Faults(repetitions=0),
    "gauss": lambda: Jitter("gauss", 1.0),
    "-1.0": lambda: Jitter("uniform", -1.0),
    "inf": lambda: Jitter("uniform", inf),
    "rank must be an integer, not '3'": lambda: RankFault("3"),
    "between must be a pair of nodes, not 'h0'": lambda: LinkFault("h0", 0.5),
    "at must be a number of seconds, not None": lambda: LinkFault(("h0", "s0"), 0.5, None),
    "ranks must be a tuple of RankFault": lambda: Faults(RankFault(3, 2.0)),
    "messages must be a Jitter or None, not 0.001": lambda: Faults(messages=1e-3),
    "seed must be a non-negative integer, not '1'": lambda: Faults(seed="1"),
}


@pytest.mark.parametrize("message", WRONG)
def test_invalid_faults_are_rejected(message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        simcomm.run("all_reduce/ring", cluster(), 4, faults=WRONG[message]())
