"""A cluster as the closed forms know it: a symmetric star, or one on which no message is slower."""

from dataclasses import replace

from collectives.costs.closed_forms import CostModel
from simcomm.cluster.cluster import Cluster


def without_idle_hosts(star: Cluster) -> Cluster:
    """Return a star without the hosts that hold no rank."""
    busy = {*star.hosts}
    kept = [node for node in star.graph if node in busy or star.graph.in_degree(node) > 1]
    return star if len(kept) == len(star.graph) else replace(star, graph=star.graph.subgraph(kept).copy())


def star_model(cluster: Cluster, nbytes: int) -> CostModel | None:
    """Return the costs of a cluster where every rank has a link of its own, all alike, into one switch, else None.

    >>> import simcomm
    >>> star_model(simcomm.star(4, "8 Gbit/s", "1 us"), nbytes=64)
    CostModel(p=4, nbytes=64, alpha=2e-06, beta=1e-09, gamma=0.0)
    """
    graph, hosts, transport = cluster.graph, cluster.hosts, cluster.transport
    if cluster.sharing != "fair":  # messages that share a link would wait for each other
        return None
    edges = [data for _, _, data in graph.edges(data=True)]
    switches = [node for node in graph if graph.in_degree(node) > 1 or graph.out_degree(node) > 1]
    is_star = len(switches) <= 1 and len(set(hosts)) == len(hosts) and not set(hosts) & set(switches)
    if transport is None or not is_star or not edges or any(data != edges[0] for data in edges[1:]):
        return None
    if edges[0].keys() - {"bandwidth", "latency"} or graph.number_of_edges() != 2 * (len(graph) - 1):
        return None
    alpha = transport.overhead + 2 * edges[0]["latency"]
    beta = 1 / (edges[0]["bandwidth"] * transport.goodput)
    return CostModel(len(hosts), nbytes, alpha, beta, transport.gamma)


def faster_star(cluster: Cluster, nbytes: int) -> CostModel:
    """Return the costs of a symmetric star on which no message is slower than on the cluster.

    Each message leaves its sender's host by one of its links and comes to the receiver's by one of those, which may
    be the same where hosts are joined directly.
    """
    transport, hosts, links = cluster.transport, set(cluster.hosts), cluster.graph.edges(data=True)
    assert transport is not None
    ends = [[data for *nodes, data in links if nodes[end] in hosts] for end in (0, 1)]
    if len(hosts) < len(cluster.hosts) or not all(ends):
        return CostModel(cluster.world_size, nbytes, transport.overhead, 0.0, transport.gamma)
    is_direct = any(a in hosts and b in hosts for a, b, _ in links)
    latency = [min(data["latency"] for data in of_end) for of_end in ends]
    rates = [max(max(data["bandwidth"], data.get("shared_bandwidth", 0.0)) for data in of_end) for of_end in ends]
    alpha = transport.overhead + (max(latency) if is_direct else sum(latency))
    return CostModel(cluster.world_size, nbytes, alpha, 1 / (min(rates) * transport.goodput), transport.gamma)
