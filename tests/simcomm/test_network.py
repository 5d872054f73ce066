"""The reference network shares links max-min fairly."""

from collections import defaultdict
from itertools import permutations
from math import inf

import networkx as nx
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simcomm import star
from simcomm.cluster.graph import Link
from simcomm.model.sharing import fair
from simcomm.reference.network import Flow, Network


def test_links_are_shared_max_min_fairly():
    ab, bc, unlimited = ("a", "b"), ("b", "c"), ("c", "d")
    event, capacities = simpy.Environment().event(), {ab: (10.0, 16.0), bc: (30.0, 30.0), unlimited: (inf, inf)}
    flows = [Flow(links, 1.0, event) for links in ((ab,), (ab, bc), (bc,), (unlimited,))]
    fair(flows, capacities)
    assert [each.rate for each in flows] == [8.0, 8.0, 22.0, inf]
    fair(flows[:1], capacities)  # alone, the link has another capacity
    assert (flows[0].rate, flows[3].seconds_left) == (10.0, 0.0)


def line(rates: list[float]) -> "nx.DiGraph[str]":
    graph: nx.DiGraph[str] = nx.DiGraph()
    for i, rate in enumerate(rates):
        graph.add_edge(f"n{i}", f"n{i + 1}", bandwidth=rate, latency=0.0)
    return graph


def check_fair(network: Network) -> None:
    """Check that no link exceeds its capacity and that no flow could be faster."""
    rates: defaultdict[Link, list[float]] = defaultdict(list)
    for each in network.flows:
        for link in each.links:
            rates[link].append(each.rate)
    limits = {link: network.capacities[link][len(of_link) > 1] for link, of_link in rates.items()}
    for link, of_link in rates.items():
        assert sum(of_link) <= limits[link] * (1 + 1e-9), f"{link} carries {sum(of_link)} bytes/s"
    full = {link for link, of_link in rates.items() if sum(of_link) >= limits[link] * (1 - 1e-9)}
    for each in network.flows:
        is_limited = any(link in full and each.rate >= max(rates[link]) * (1 - 1e-9) for link in each.links)
        assert is_limited or each.rate == inf, f"a flow over {each.links} could be faster"


@given(st.data())
def test_random_flows_on_line_are_fair_at_every_instant(data: st.DataObject):
    """Rates that are recomputed near a change must be bit-identical to rates recomputed everywhere."""
    n = data.draw(st.integers(2, 7))
    env = simpy.Environment()
    rates = data.draw(st.lists(st.integers(1, 100).map(float), min_size=n - 1, max_size=n - 1))
    network = Network(env, line(rates), goodput=1.0)
    ends = st.tuples(st.integers(0, n - 2), st.integers(1, n - 1)).filter(lambda pair: pair[0] < pair[1])
    drawn = data.draw(st.lists(st.tuples(ends, st.integers(1, 1000), st.integers(0, 20)), min_size=1, max_size=12))

    def transfer(a, b, nbytes, begin):
        yield env.timeout(begin)
        yield from network.transfer(f"n{a}", f"n{b}", nbytes)

    for (a, b), nbytes, begin in drawn:
        env.process(transfer(a, b, nbytes, begin))
    while env.peek() < inf:
        env.step()
        if not network._share_out_due:  # else rates change at this instant
            check_fair(network)
            rates = [each.rate for each in network.flows]
            fair(network.flows, network.capacities)
            assert [each.rate for each in network.flows] == rates
    assert not network.flows
    crossed = {(f"n{i}", f"n{i + 1}"): sum(nbytes for (a, b), nbytes, _ in drawn if a <= i < b) for i in range(n - 1)}
    assert network.carried == crossed


def exchange(p: int, n: int) -> tuple[Network, list[float]]:
    """Exchange ``n`` bytes between all pairs of a star of ``p`` hosts. Return the network and the end times."""
    env = simpy.Environment()
    network = Network(env, star(p, "10 Gbit/s", "0 us").graph, goodput=1.0)
    ends = []

    def transfer(src, dst):
        yield from network.transfer(f"h{src}", f"h{dst}", (src + 1) * n // p - src * n // p)
        ends.append(env.now)

    for src, dst in permutations(range(p), 2):
        env.process(transfer(src, dst))
    env.run()
    return network, ends


def test_rounding_sends_no_more_than_the_remaining_bytes():
    _, ends = exchange(12, 477755)  # messages that differ by a byte end at almost the same time
    assert ends[-1] == pytest.approx(11 * 39813 / 1.25e9, rel=1e-4)


def test_identical_flows_get_bit_identical_times():
    runs = [exchange(7, 123457) for _ in range(8)]  # all alive, so that memory addresses differ
    assert len({tuple(ends) for _, ends in runs}) == 1
