"""The reference network shares links max-min fairly."""

from math import inf

import networkx as nx
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simcomm.model.sharing import fair
from simcomm.reference.network import Flow, Network


def test_links_are_shared_max_min_fairly_among_flows():
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
            rates = [each.rate for each in network.flows]
            fair(network.flows, network.capacities)
            assert [each.rate for each in network.flows] == rates
    assert not network.flows
    crossed = {(f"n{i}", f"n{i + 1}"): sum(nbytes for (a, b), nbytes, _ in drawn if a <= i < b) for i in range(n - 1)}
    assert network.carried == crossed
