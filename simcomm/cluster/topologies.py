"""Networks of hosts: ring, fully connected, torus, two-level tree, fat tree, dragonfly.

Hosts are h0, h1, ... and hold one rank each; switches are s0, s1, ... with their ``tier``, counted from the hosts.
Every link has the given bandwidth and latency in each direction unless said otherwise. All raise InputError.
"""

from collections.abc import Sequence
from itertools import combinations, product
from math import prod

import networkx as nx

from collectives.errors import InputError
from collectives.transport import Transport
from collectives.units import format_bandwidth
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.graph import Wire, empty, join, wire


def ring(hosts: int, bandwidth: str, latency: str, transport: Transport | None = IDEAL) -> Cluster:
    """Hosts in a circle without switches, each linked to the next; they pass on what is not for them."""
    _at_least(hosts, 1, "hosts")
    graph, along = empty(_named("h", hosts)), wire(bandwidth, latency)
    for host in range(hosts):
        _link(graph, f"h{host}", f"h{(host + 1) % hosts}", along)
    return _cluster(f"ring of {hosts} hosts", graph, hosts, along, transport)


def fully_connected(hosts: int, bandwidth: str, latency: str, transport: Transport | None = IDEAL) -> Cluster:
    """A link between every two hosts, without switches."""
    _at_least(hosts, 1, "hosts")
    graph, along = empty(_named("h", hosts)), wire(bandwidth, latency)
    for a, b in combinations(_named("h", hosts), 2):
        join(graph, a, b, along)
    return _cluster(f"{hosts} hosts, fully connected", graph, hosts, along, transport)


def torus(dimensions: Sequence[int], bandwidth: str, latency: str, transport: Transport | None = IDEAL) -> Cluster:
    """Hosts in a grid that closes in every dimension, numbered row by row (the last dimension runs fastest).

    Each is linked to both neighbours in each dimension; in a dimension of two there is one link, not two.
    """
    for size in dimensions:
        _at_least(size, 1, "every dimension")
    if len(dimensions) not in (2, 3):
        raise InputError(f"a torus of {len(dimensions)} dimensions; 2 or 3 are built, for example [4, 4, 2]")
    hosts, along = prod(dimensions), wire(bandwidth, latency)
    graph = empty(_named("h", hosts))
    strides = [prod(dimensions[axis + 1 :]) for axis in range(len(dimensions))]
    for host, place in enumerate(product(*map(range, dimensions))):
        for axis, size in enumerate(dimensions):
            step = strides[axis] * (1 if place[axis] + 1 < size else 1 - size)
            _link(graph, f"h{host}", f"h{host + step}", along)
    return _cluster(f"{' x '.join(map(str, dimensions))} torus", graph, hosts, along, transport)


def two_level_tree(
    racks: int,
    hosts_per_rack: int,
    bandwidth: str,
    latency: str,
    oversubscription: float = 1.0,
    transport: Transport | None = IDEAL,
) -> Cluster:
    """Racks with a switch each (s0, s1, ...), joined by one core switch that never blocks.

    A rack's link to the core has the bandwidth of its hosts together, divided by ``oversubscription``.
    """
    _at_least(racks, 1, "racks")
    _at_least(hosts_per_rack, 1, "hosts_per_rack")
    if not 0 < oversubscription < float("inf"):
        raise InputError(f"oversubscription {oversubscription}; a number above 0 is needed, 4 for 4:1")
    hosts, along = racks * hosts_per_rack, wire(bandwidth, latency)
    graph = empty(_named("h", hosts))
    graph.add_nodes_from(_named("s", racks), kind="switch", tier=1)
    graph.add_node(f"s{racks}", kind="switch", tier=2)
    for host in range(hosts):
        join(graph, f"h{host}", f"s{host // hosts_per_rack}", along)
    for rack in range(racks):
        join(graph, f"s{rack}", f"s{racks}", along.times(hosts_per_rack / oversubscription))
    title = f"{racks} racks of {hosts_per_rack} hosts, {oversubscription:g}:1"
    return _cluster(title, graph, hosts, along, transport)


def fat_tree(ports: int, bandwidth: str, latency: str, transport: Transport | None = IDEAL) -> Cluster:
    """Three tiers of switches with ``ports`` ports (k) each: k^3/4 hosts at full bisection bandwidth.

    k pods of k/2 edge and k/2 aggregation switches; (k/2)^2 core switches, each linked to every pod (Al-Fares,
    Loukissas, Vahdat, "A scalable, commodity data center network architecture", 2008). Full bandwidth between all pairs
    at once needs routes that spread: the default does, by receiver.
    """
    _at_least(ports, 2, "ports")
    if ports % 2:
        raise InputError(f"{ports} ports; half of a fat tree's ports go up, so their number is even")
    half, along = ports // 2, wire(bandwidth, latency)
    edges, hosts = ports * half, ports * half * half
    graph = empty(_named("h", hosts))
    for number in range(2 * edges + half * half):
        graph.add_node(f"s{number}", kind="switch", tier=1 + min(number // edges, 2))
    for host in range(hosts):
        join(graph, f"h{host}", f"s{host // half}", along)
    for pod, low, high in product(range(ports), range(half), range(half)):
        join(graph, f"s{pod * half + low}", f"s{edges + pod * half + high}", along)
        join(graph, f"s{edges + pod * half + high}", f"s{2 * edges + high * half + low}", along)
    return _cluster(f"fat tree of {ports}-port switches, {hosts} hosts", graph, hosts, along, transport)


def dragonfly(
    hosts_per_router: int,
    routers_per_group: int,
    global_links: int,
    bandwidth: str,
    latency: str,
    groups: int | None = None,
    transport: Transport | None = IDEAL,
) -> Cluster:
    """Groups of fully connected routers; one global link between every two groups.

    A router has ``global_links`` ports to other groups, so there are at most routers_per_group * global_links + 1
    groups, which is the default (Kim, Dally, Scott, Abts, "Technology-driven, highly-scalable dragonfly topology",
    2008, where p, a and h are the first three). Group i's j-th global port leads to group i + j + 1.
    """
    for name, value in (("hosts_per_router", hosts_per_router), ("routers_per_group", routers_per_group)):
        _at_least(value, 1, name)
    _at_least(global_links, 0, "global_links")
    most = routers_per_group * global_links + 1
    groups = most if groups is None else groups
    if not 1 <= groups <= most:
        raise InputError(
            f"{groups} groups; {routers_per_group} routers of {global_links} global links join 1 to {most}"
        )
    routers, along = groups * routers_per_group, wire(bandwidth, latency)
    graph = empty(_named("h", routers * hosts_per_router), _named("s", routers))
    for host in range(routers * hosts_per_router):
        join(graph, f"h{host}", f"s{host // hosts_per_router}", along)
    for group in range(groups):
        for a, b in combinations(range(group * routers_per_group, (group + 1) * routers_per_group), 2):
            join(graph, f"s{a}", f"s{b}", along)
    for a, b in combinations(range(groups), 2):
        low, high = a * routers_per_group + (b - a - 1) // global_links, b * routers_per_group
        join(graph, f"s{low}", f"s{high + (groups - b + a - 1) // global_links}", along)
    title = f"dragonfly of {groups} groups, {routers * hosts_per_router} hosts"
    return _cluster(title, graph, routers * hosts_per_router, along, transport)


def _named(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def _link(graph: "nx.DiGraph[str]", a: str, b: str, along: Wire) -> None:
    """A link, unless the two are one or have theirs already, as in a circle of two."""
    if a != b and not graph.has_edge(a, b):
        join(graph, a, b, along)


def _cluster(title: str, graph: "nx.DiGraph[str]", hosts: int, along: Wire, transport: Transport | None) -> Cluster:
    return Cluster(f"{title}, {format_bandwidth(along.bandwidth)}", graph, tuple(_named("h", hosts)), transport)


def _at_least(value: int, least: int, what: str) -> None:
    if type(value) is not int or value < least:
        raise InputError(f"{what} = {value!r}; a whole number from {least} on is needed")
