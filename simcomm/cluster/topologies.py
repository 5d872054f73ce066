"""Build networks of hosts: star, ring, fully connected, torus, two-level tree, fat tree.

Hosts are h0, h1, ... with one rank each. Switches are s0, s1, ...; their ``tier`` counts the levels above the hosts.
Unless a builder states otherwise, links have the given bandwidth and latency in each direction. Both are text with
units or parsed values. All builders raise InputError for arguments of the wrong type or size.
"""

from collections.abc import Sequence
from itertools import combinations, product
from math import prod

import networkx as nx

from collectives.checks import check_number, check_sequence, check_whole_number
from collectives.errors import InputError
from collectives.transport import Transport
from collectives.units import Bandwidth, Latency, count, format_bandwidth
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import LinkSpec, add_link, check_links, empty_graph, link_spec


def star(
    hosts: int, bandwidth: str | Bandwidth, latency: str | Latency, transport: Transport | None = IDEAL
) -> Cluster:
    """Build a star: all hosts connect to one non-blocking switch (s0).

    >>> star(8, "10 Gbit/s", "5 us")
    <Cluster star of 8 hosts, 10 Gbit/s: 8 ranks, 9 nodes, 16 links>
    """
    check_links(check_whole_number("hosts", hosts, at_least=1))
    graph, link = empty_graph(), link_spec(bandwidth, latency)
    for host in range(hosts):
        add_link(graph, f"h{host}", "s0", link)
    return _cluster(f"star of {count(hosts, 'host')}", graph, hosts, link, transport)


def ring(
    hosts: int, bandwidth: str | Bandwidth, latency: str | Latency, transport: Transport | None = IDEAL
) -> Cluster:
    """Build a ring of hosts without switches. Each host is linked to the next and forwards other hosts' messages.

    >>> ring(4, "10 Gbit/s", "5 us")
    <Cluster ring of 4 hosts, 10 Gbit/s: 4 ranks, 4 nodes, 8 links>
    """
    check_links(check_whole_number("hosts", hosts, at_least=1))
    graph, link = empty_graph(_names("h", hosts)), link_spec(bandwidth, latency)
    for host in range(hosts):
        _add_link_once(graph, f"h{host}", f"h{(host + 1) % hosts}", link)
    return _cluster(f"ring of {count(hosts, 'host')}", graph, hosts, link, transport)


def fully_connected(
    hosts: int, bandwidth: str | Bandwidth, latency: str | Latency, transport: Transport | None = IDEAL
) -> Cluster:
    """Build a fully connected network without switches: every two hosts share a link.

    >>> fully_connected(4, "10 Gbit/s", "5 us")
    <Cluster 4 hosts, fully connected, 10 Gbit/s: 4 ranks, 4 nodes, 12 links>
    """
    check_links(check_whole_number("hosts", hosts, at_least=1) * (hosts - 1) // 2)
    graph, link = empty_graph(_names("h", hosts)), link_spec(bandwidth, latency)
    for a, b in combinations(graph, 2):
        add_link(graph, a, b, link)
    return _cluster(f"{count(hosts, 'host')}, fully connected", graph, hosts, link, transport)


def torus(
    dimensions: Sequence[int], bandwidth: str | Bandwidth, latency: str | Latency, transport: Transport | None = IDEAL
) -> Cluster:
    """Build a torus: a grid of hosts with wrap-around links, numbered row by row (last dimension fastest).

    Each host is linked to both neighbors in each dimension. In a dimension of size two, both neighbors are the same
    host, which is linked only once.

    >>> torus([4, 4], "10 Gbit/s", "5 us")
    <Cluster 4 x 4 torus, 10 Gbit/s: 16 ranks, 16 nodes, 64 links>
    """
    for size in check_sequence("dimensions", dimensions, of="numbers of hosts"):
        check_whole_number("every dimension", size, at_least=1)
    if len(dimensions) not in (2, 3):
        raise InputError(f"dimensions must be 2 or 3 numbers, for example [4, 4, 2], not {len(dimensions)}")
    hosts, link = prod(dimensions), link_spec(bandwidth, latency)
    check_links(hosts * len(dimensions))
    graph = empty_graph(_names("h", hosts))
    graph.graph["dimensions"] = tuple(dimensions)
    strides = [prod(dimensions[axis + 1 :]) for axis in range(len(dimensions))]
    for host, position in enumerate(product(*map(range, dimensions))):
        for axis, size in enumerate(dimensions):
            step = strides[axis] * (1 if position[axis] + 1 < size else 1 - size)
            _add_link_once(graph, f"h{host}", f"h{host + step}", link)
    return _cluster(f"{' x '.join(map(str, dimensions))} torus", graph, hosts, link, transport)


def two_level_tree(
    racks: int,
    hosts_per_rack: int,
    bandwidth: str | Bandwidth,
    latency: str | Latency,
    oversubscription: float = 1.0,
    transport: Transport | None = IDEAL,
) -> Cluster:
    """Build racks of hosts. Each rack has one switch (s0, s1, ...), and a non-blocking core switch joins the racks.

    A rack's link to the core has the total bandwidth of its hosts, divided by ``oversubscription``.

    >>> two_level_tree(2, 4, "10 Gbit/s", "5 us", oversubscription=4)
    <Cluster 2 racks of 4 hosts, 4:1, 10 Gbit/s: 8 ranks, 11 nodes, 20 links>
    """
    check_whole_number("racks", racks, at_least=1)
    check_whole_number("hosts_per_rack", hosts_per_rack, at_least=1)
    check_number("oversubscription", oversubscription, above=0)
    hosts, link = racks * hosts_per_rack, link_spec(bandwidth, latency)
    check_links(hosts + racks)
    graph = empty_graph(_names("h", hosts))
    graph.add_nodes_from(_names("s", racks), kind="switch", tier=1)
    graph.add_node(f"s{racks}", kind="switch", tier=2)
    for host in range(hosts):
        add_link(graph, f"h{host}", f"s{host // hosts_per_rack}", link)
    for rack in range(racks):
        add_link(graph, f"s{rack}", f"s{racks}", link.times(hosts_per_rack / oversubscription))
    title = f"{count(racks, 'rack')} of {count(hosts_per_rack, 'host')}, {oversubscription:g}:1"
    return _cluster(title, graph, hosts, link, transport)


def fat_tree(
    ports: int, bandwidth: str | Bandwidth, latency: str | Latency, transport: Transport | None = IDEAL
) -> Cluster:
    """Build a fat tree of switches with ``ports`` ports (k) each: k^3/4 hosts with full bisection bandwidth.

    There are k pods of k/2 edge and k/2 aggregation switches, and (k/2)^2 core switches, each linked to every pod
    (Al-Fares, Loukissas, Vahdat, "A scalable, commodity data center network architecture", 2008). Pairs of hosts get
    the full bandwidth only if routes are spread over all switches. The default routing spreads them by receiver.

    >>> fat_tree(4, "10 Gbit/s", "5 us")
    <Cluster fat tree of 4-port switches, 16 hosts, 10 Gbit/s: 16 ranks, 36 nodes, 96 links>
    """
    check_whole_number("ports", ports, at_least=2)
    if ports % 2:
        raise InputError(f"ports of a fat tree must be even, not {ports}")
    half, link = ports // 2, link_spec(bandwidth, latency)
    edges, hosts = ports * half, ports * half * half
    check_links(3 * hosts)
    graph = empty_graph(_names("h", hosts))
    for number in range(2 * edges + half * half):
        graph.add_node(f"s{number}", kind="switch", tier=1 + min(number // edges, 2))
    for host in range(hosts):
        add_link(graph, f"h{host}", f"s{host // half}", link)
    for pod, low, high in product(range(ports), range(half), range(half)):
        add_link(graph, f"s{pod * half + low}", f"s{edges + pod * half + high}", link)
        add_link(graph, f"s{edges + pod * half + high}", f"s{2 * edges + high * half + low}", link)
    return _cluster(f"fat tree of {ports}-port switches, {count(hosts, 'host')}", graph, hosts, link, transport)


def _names(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def _add_link_once(graph: "nx.DiGraph[str]", a: str, b: str, link: LinkSpec) -> None:
    """Add a link unless both ends are the same node or are already linked, as in a ring of two."""
    if a != b and not graph.has_edge(a, b):
        add_link(graph, a, b, link)


def _cluster(title: str, graph: "nx.DiGraph[str]", hosts: int, link: LinkSpec, transport: Transport | None) -> Cluster:
    return Cluster(f"{title}, {format_bandwidth(link.bandwidth)}", graph, tuple(_names("h", hosts)), transport)
