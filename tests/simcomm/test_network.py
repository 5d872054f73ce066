"""Flows share links max-min fairly."""

from itertools import permutations
from math import inf

import networkx as nx
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simcomm import star
from simcomm.model.sharing import fair
from simcomm.reference.network import Flow, Network

ENV = simpy.Environment()


def flow(*links: str) -> Flow:
    """A flow over links written as two letters."""
    return Flow(tuple((link[0], link[1]) for link in links), 1.0, ENV.event())


def capacities(**links: float) -> dict[tuple[str, str], tuple[float, float]]:
    return {(name[0], name[1]): (capacity, capacity) for name, capacity in links.items()}


def test_one_long_flow_and_a_short_one_on_each_link():
    """The classic example: the long flow gets half of the tight link, the other short flow what is left."""
    long, first, second = flow("ab", "bc"), flow("ab"), flow("bc")
    fair([long, first, second], capacities(ab=10.0, bc=30.0))
    assert (long.rate, first.rate, second.rate) == (5.0, 5.0, 25.0)


def test_a_flow_over_nothing_that_limits_is_through_at_once():
    free = flow("ab")
    fair([free], capacities(ab=inf))
    assert free.rate == inf
    assert free.seconds_left == 0.0


def test_a_shared_link_can_have_another_capacity_than_one_for_a_flow_alone():
    links = {("a", "b"): (10.0, 16.0)}
    one, other = flow("ab"), flow("ab")
    fair([one], links)
    assert one.rate == 10.0
    fair([one, other], links)
    assert one.rate == other.rate == 8.0


def line(n: int, rates: list[float]) -> "nx.DiGraph[str]":
    graph: nx.DiGraph[str] = nx.DiGraph()
    for i in range(n - 1):
        graph.add_edge(f"n{i}", f"n{i + 1}", bandwidth=rates[i], latency=0.0)
    return graph


@given(st.data())
def test_random_flows_on_a_line_are_fair_at_every_instant(data: st.DataObject):
    n = data.draw(st.integers(2, 7))
    rates = data.draw(st.lists(st.integers(1, 100).map(float), min_size=n - 1, max_size=n - 1))
    env = simpy.Environment()
    network = Network(env, line(n, rates), goodput=1.0)
    ends = st.tuples(st.integers(0, n - 2), st.integers(1, n - 1)).filter(lambda pair: pair[0] < pair[1])
    wanted = data.draw(st.lists(st.tuples(ends, st.integers(1, 1000), st.integers(0, 20)), min_size=1, max_size=12))

    def one(ends, nbytes, begin):
        yield env.timeout(begin)
        yield from network.transfer(f"n{ends[0]}", f"n{ends[1]}", nbytes)

    processes = [env.process(one(*each)) for each in wanted]
    while not all(process.processed for process in processes):
        env.step()
        if not network._share_out_due:  # else rates change in this very instant
            network._check()
    assert not network.flows
    crossed = {(f"n{i}", f"n{i + 1}"): sum(nbytes for (a, b), nbytes, _ in wanted if a <= i < b) for i in range(n - 1)}
    assert network.carried == crossed


@given(st.data())
def test_rates_shared_out_where_something_changed_are_those_of_sharing_out_everything(data: st.DataObject):
    """To the last bit, whoever came and left before."""
    n = data.draw(st.integers(3, 7))
    rates = data.draw(st.lists(st.integers(1, 100).map(float), min_size=n - 1, max_size=n - 1))
    env = simpy.Environment()
    network = Network(env, line(n, rates), goodput=1.0)
    ends = st.tuples(st.integers(0, n - 2), st.integers(1, n - 1)).filter(lambda pair: pair[0] < pair[1])
    for (a, b), nbytes, begin in data.draw(
        st.lists(st.tuples(ends, st.integers(1, 99), st.integers(0, 9)), max_size=12)
    ):
        env.process(after(env, begin, network.transfer(f"n{a}", f"n{b}", nbytes)))
    while env.peek() < inf:
        env.step()
        if not network._share_out_due:
            found = [flow.rate for flow in network.flows]
            fair(network.flows, network.capacities)
            assert [flow.rate for flow in network.flows] == found


def after(env, seconds, process):
    yield env.timeout(seconds)
    yield from process


def test_no_link_carries_more_than_its_capacity_allows_in_the_time():
    env = simpy.Environment()
    network = Network(env, line(3, [10.0, 5.0]), goodput=0.5)
    for dst in ("n1", "n2", "n2"):
        env.process(network.transfer("n0", dst, 100))
    env.run()
    # The trunk n1-n2 gives 2.5 bytes/s to two flows of 100 bytes; the third has 2.5 of the first link beside them.
    assert env.now == pytest.approx(80.0, rel=1e-12)


def exchange(p: int, n: int) -> tuple[Network, list[float]]:
    """A star on which each of ``p`` hosts has sent its p-th of ``n`` bytes to each other; when each was through."""
    env = simpy.Environment()
    network = Network(env, star(p, "10 Gbit/s", "0 us").graph, goodput=1.0)
    ends = []

    def one(src, dst):
        yield from network.transfer(f"h{src}", f"h{dst}", (src + 1) * n // p - src * n // p)
        ends.append(env.now)

    for src, dst in permutations(range(p), 2):
        env.process(one(src, dst))
    env.run()
    return network, ends


def test_rounding_takes_no_more_bytes_than_there_are():
    """Messages that differ by a byte end so close together that the last has less left than rounding takes off."""
    _, ends = exchange(12, 477755)
    assert ends[-1] == pytest.approx(11 * 39813 / 1.25e9, rel=1e-4)


def test_the_same_flows_get_the_same_times_to_the_last_bit():
    kept = [exchange(7, 123457) for _ in range(8)]  # kept, so that each run has its flows elsewhere in memory
    assert len({tuple(ends) for _, ends in kept}) == 1


def test_the_check_itself_notices_an_unfair_rate():
    network = Network(simpy.Environment(), line(2, [10.0]), goodput=1.0)
    network.flows = [Flow((("n0", "n1"),), 1.0, ENV.event())]
    network.flows[0].rate = 9.0
    with pytest.raises(AssertionError, match="could be faster"):
        network._check()
    network.flows[0].rate = 11.0
    with pytest.raises(AssertionError, match="carries"):
        network._check()
