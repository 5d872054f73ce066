"""Random cases: flow sets, random step programs and collectives on random networks, the same for the same seed.

Routes are never a matter of taste: ranks exchange messages only where one path is the shortest.
"""

from collections.abc import Callable
from itertools import permutations, product
from random import Random

import networkx as nx
from oracle.cases import Case, Link, text_of

from collectives.step import Step, copy, recv, recv_reduce, send

Edges = list[tuple[str, str]]
CHUNKS = 200  # of flow sets: sizes and start times are so fine
COLLECTIVES = (
    "all_reduce/ring", "all_reduce/naive", "all_reduce/unchunked_ring", "broadcast/naive", "reduce/naive",
)  # fmt: skip


def star(rng: Random) -> Edges:
    return [(f"h{i}", "s0") for i in range(rng.randint(2, 20))]


def two_levels(rng: Random) -> Edges:
    """Racks of equal size below one switch."""
    racks, size = rng.randint(2, 5), rng.randint(2, 4)
    trunks = [(f"s{rack + 1}", "s0") for rack in range(racks)]
    return trunks + [(f"h{i}", f"s{i % racks + 1}") for i in range(racks * size)]


def tree(rng: Random) -> Edges:
    """Any tree of switches, hosts at any of them."""
    switches = rng.randint(2, 9)
    trunks = [(f"s{i}", f"s{rng.randrange(i)}") for i in range(1, switches)]
    return trunks + [(f"h{i}", f"s{rng.randrange(switches)}") for i in range(rng.randint(2, 20))]


def ring(rng: Random) -> Edges:
    """Hosts joined to each other, no switch; messages pass through hosts."""
    hosts = rng.randint(3, 15)
    return [(f"h{i}", f"h{(i + 1) % hosts}") for i in range(hosts)]


def mesh(rng: Random) -> Edges:
    """Switches in rows and columns, a host at each."""
    rows, columns = rng.randint(2, 4), rng.randint(3, 5)
    places = list(product(range(rows), range(columns)))
    number = {place: i for i, place in enumerate(places)}
    across = [(number[r, c], number[r, c + 1]) for r, c in places if c + 1 < columns]
    down = [(number[r, c], number[r + 1, c]) for r, c in places if r + 1 < rows]
    return [(f"h{i}", f"s{i}") for i in number.values()] + [(f"s{a}", f"s{b}") for a, b in across + down]


def web(rng: Random) -> Edges:
    """A tree of switches with some links more."""
    edges = tree(rng)
    switches = sorted({node for edge in edges for node in edge if node.startswith("s")})
    pairs = [(b, a) for a, b in permutations(switches, 2) if a < b and not {(a, b), (b, a)} & set(edges)]
    return edges + rng.sample(pairs, min(len(pairs), rng.randint(1, 4)))


TREES = (star, two_levels, tree)
NETWORKS = (*TREES, ring, mesh, web)


def links(rng: Random, edges: Edges) -> list[Link]:
    """The edges with bandwidths (all alike, of two kinds, or any) and latencies (none, alike per route, or any)."""
    rates = rng.choice([[1_250_000_000], [125_000_000, 1_250_000_000], []])
    latency = rng.choice([_no_latency, _equal_latency, _any_latency])(rng)
    return [(a, b, rng.choice(rates) if rates else _any_rate(rng), latency(a, b)) for a, b in edges]


def _any_rate(rng: Random) -> int:
    return int(10 ** rng.uniform(7, 10))


def _no_latency(rng: Random) -> Callable[[str, str], int]:
    return lambda a, b: 0


def _equal_latency(rng: Random) -> Callable[[str, str], int]:
    """Routes that begin and end at a host's only link are all equally long."""
    nanoseconds = int(10 ** rng.uniform(2, 6))
    return lambda a, b: nanoseconds if "h" in (a[0], b[0]) else 0


def _any_latency(rng: Random) -> Callable[[str, str], int]:
    most = 10 ** rng.uniform(2, 6)
    return lambda a, b: rng.randint(1, int(most))


def clear_pairs(edges: Edges) -> list[tuple[str, str]]:
    """Pairs of hosts, in both orders, with one shortest path between them."""
    graph: nx.Graph[str] = nx.Graph(edges)
    hosts = sorted(node for node in graph if node.startswith("h"))
    return [pair for pair in permutations(hosts, 2) if len(list(nx.all_shortest_paths(graph, *pair))) == 1]


def flow_set(rng: Random, number: int) -> Case:
    """Up to 40 messages between any hosts. Each has its own two ranks; the sender is busy until the message starts."""
    network = rng.choice(NETWORKS)
    edges = network(rng)
    flows = rng.choices(clear_pairs(edges), k=rng.randint(1, 40))
    sizes = rng.choice([[CHUNKS], [CHUNKS // 2, CHUNKS], range(1, CHUNKS + 1)])
    starts = rng.choice([[0], [0, 40, 120], range(CHUNKS + 1)])
    programs = []
    for flow in range(len(flows)):
        size, start = rng.choice(sizes), rng.choice(starts)
        chunk = rng.randint(0, CHUNKS - size)
        wait: list[Step] = [(copy(0, CHUNKS, start),)] if start else []
        programs.append(text_of([[*wait, (send(2 * flow + 1, chunk, size),)]]))
        programs.append(text_of([[(recv(2 * flow, chunk, size),)]]))
    hosts = [host for pair in flows for host in pair]
    nbytes, gamma = _nbytes(rng), rng.uniform(0.1, 20) / 1e9
    return Case(f"flows-{number}-{network.__name__}", links(rng, edges), hosts, nbytes, gamma, "", CHUNKS, programs)


def _nbytes(rng: Random) -> int:
    return int(10 ** rng.uniform(4, 8))


def collective(rng: Random, number: int) -> Case:
    """An algorithm of the library on a tree, ranks on any of its hosts; sometimes with fewer bytes than ranks."""
    network, algorithm = rng.choice(TREES), rng.choice(COLLECTIVES)
    edges = network(rng)
    nbytes = rng.choice([rng.randint(1, 20), _nbytes(rng), _nbytes(rng), _nbytes(rng)])
    name = f"collective-{number}-{algorithm.replace('/', '-')}-{network.__name__}"
    return Case(name, links(rng, edges), _placed(rng, edges), nbytes, _gamma(rng), algorithm)


def _gamma(rng: Random) -> float:
    return rng.choice([0.0, rng.uniform(0, 2) / 1e9])


def _placed(rng: Random, edges: Edges) -> list[str]:
    hosts = sorted({node for edge in edges for node in edge if node.startswith("h")})
    return rng.sample(hosts, rng.randint(2, len(hosts)))


def exchange(rng: Random, number: int) -> Case:
    """Every rank sends its own chunk to every other, all in one step: many messages that share many links."""
    network = rng.choice(TREES)
    edges = network(rng)
    hosts = _placed(rng, edges)
    ranks = range(len(hosts))
    programs = [
        text_of([[tuple(op for p in ranks if p != rank for op in (send(p, rank), recv(p, p)))]]) for rank in ranks
    ]
    name = f"exchange-{number}-{network.__name__}"
    return Case(name, links(rng, edges), hosts, _nbytes(rng), 0.0, "", len(hosts), programs)


def step_programs(rng: Random, number: int) -> Case:
    """Random steps on any network, on one channel or some, each with its own chunks."""
    network = rng.choice(NETWORKS)
    edges = network(rng)
    clear = set(clear_pairs(edges))
    pairs: list[tuple[int, int]] = []
    while not pairs:
        hosts = _placed(rng, edges)
        pairs = [(a, b) for a, b in permutations(range(len(hosts)), 2) if (hosts[a], hosts[b]) in clear]
    chunks, channels = rng.choice([1, 8, 60]), rng.choice([1, 1, 2, 3])
    parts = [range(i * chunks, (i + 1) * chunks) for i in range(channels)]
    programs = [_channel(rng, len(hosts), pairs, own, scratch=chunks * channels) for own in parts]
    text = [text_of([program[rank] for program in programs]) for rank in range(len(hosts))]
    nbytes = rng.choice([rng.randint(1, 2 * chunks * channels), _nbytes(rng), _nbytes(rng)])
    name = f"steps-{number}-{network.__name__}"
    return Case(name, links(rng, edges), hosts, nbytes, _gamma(rng), "", chunks * channels, text)


def _channel(rng: Random, world_size: int, pairs: list[tuple[int, int]], own: range, scratch: int) -> list[list[Step]]:
    """What each rank does on a channel, whose chunks are its ``own``; scratch begins at chunk ``scratch``.

    Messages are drawn in rounds, and a rank's step holds its part of one round or of some in succession: each round
    can complete once those before it have, so that nothing deadlocks.
    """
    programs: list[list[Step]] = [[()] for _ in range(world_size)]
    for _ in range(rng.randint(1, 12)):
        for program in programs:
            if rng.random() < 0.7:
                program.append(())
        for a, b in rng.choices(pairs, k=rng.randint(1, 2 * world_size)):
            _add_message(rng, programs, a, b, own)
    return [[_with_copy(rng, step, own, scratch) for step in program if step] for program in programs]


def _add_message(rng: Random, programs: list[list[Step]], src: int, dst: int, own: range) -> None:
    """Put a message into the last steps of two ranks, unless one of its chunks is already spoken for there."""
    count = rng.randint(1, len(own))
    chunk = rng.randint(own.start, own.stop - count)
    taken = {k for op in programs[dst][-1] for k in op.target}
    sends = {(op.peer, op.chunk) for op in programs[src][-1] if not op.kind.receives}
    if taken.isdisjoint(range(chunk, chunk + count)) and (dst, chunk) not in sends:
        receive = rng.choice([recv, recv_reduce])
        programs[src][-1] += (send(dst, chunk, count),)
        programs[dst][-1] += (receive(src, chunk, count),)


def _with_copy(rng: Random, step: Step, own: range, scratch: int) -> Step:
    """Now and then a rank is busy after its messages."""
    if rng.random() < 0.8:
        return step
    return (*step, copy(own.start, scratch + own.start, rng.randint(1, len(own))))
