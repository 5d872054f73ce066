"""Create random programs on random networks, and simulate them on the reference engine."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

import networkx as nx

from collectives.call import CollectiveCall
from collectives.declaration import Algorithm
from collectives.schedule.build import build_schedule
from collectives.schedule.schedule import Schedule
from collectives.spec import find_spec
from collectives.step import Kind, Step, copy, recv, recv_reduce, reduce, send
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.model.faults import NO_FAULTS, Faults, Jitter, LinkFault, RankFault
from simcomm.reference.engine import Buffer, Simulation

Programs = list[list[list[Step]]]  # [rank][channel][step]


@dataclass(frozen=True)
class Case:
    schedule: Schedule
    cluster: Cluster
    n: int
    op: str = "sum"

    @property
    def call(self) -> CollectiveCall:
        return CollectiveCall(self.schedule.algorithm, self.n, op=self.op)

    def inputs(self, faults: Faults = NO_FAULTS) -> EngineInput:
        return EngineInput(self.call, self.schedule, self.cluster, self.transport, faults)

    @property
    def transport(self) -> Transport:
        assert self.cluster.transport is not None
        return self.cluster.transport


def random_case(random: Random, most_ranks: int) -> Case:
    """Return a program that cannot deadlock, with up to ``most_ranks`` ranks, on a connected network."""
    p = random.randint(1, most_ranks)
    cluster = random_cluster(random, p)
    chunks, channels = random.choice([1, p, 2 * p, 4 * p]), random.choice([1, 1, 2])
    n = random.choice([1, chunks, 3 * chunks, 17 * chunks + 5, 100_000])
    programs = random_programs(random, p, chunks, channels)
    return Case(build_schedule(as_algorithm(programs, channels * chunks), p), cluster, n)


def as_algorithm(programs: Programs, chunks: int) -> Algorithm:
    """Return the steps of each rank as an algorithm with as many scratch chunks as chunks."""

    def program(rank: int, world_size: int) -> tuple[Iterator[Step], ...]:
        return tuple(iter(channel) for channel in programs[rank])

    return Algorithm(find_spec("all_reduce"), "random", program, chunks, chunks)


def random_programs(random: Random, p: int, chunks: int, channels: int) -> Programs:
    """Return consecutive exchanges on each channel, each among some ranks, so that no message waits forever."""
    by_channel = [_random_channel(random, p, range(k * chunks, (k + 1) * chunks), channels) for k in range(channels)]
    return [[channel[rank] for channel in by_channel] for rank in range(p)]


def _random_channel(random: Random, p: int, chunks: range, channels: int) -> list[list[Step]]:
    programs: list[list[Step]] = [[] for _ in range(p)]
    scratch, messages = len(chunks) * channels, random.choice([2, p, 3 * p, 6 * p])
    for _ in range(random.randint(0, 8)):
        exchange: list[list[Any]] = [[] for _ in range(p)]
        written: list[set[int]] = [set() for _ in range(p)]
        for _ in range(random.randint(0, messages) if p > 1 else 0):
            _add_message(random, exchange, written, chunks, scratch)
        for rank in range(p):
            chunk = random.choice(chunks)
            if random.random() < 0.2 and chunk + scratch not in written[rank]:
                exchange[rank].append(random.choice([copy, reduce])(chunk, chunk + scratch))
            if exchange[rank] or random.random() < 0.1:
                programs[rank].append(tuple(exchange[rank]))
    return programs


def _add_message(
    random: Random, exchange: list[list[Any]], written: list[set[int]], chunks: range, scratch: int
) -> None:
    src, dst = random.sample(range(len(exchange)), 2)
    chunk, count = random.choice(chunks), 1
    if random.random() < 0.25:
        chunk, count = chunks.start, len(chunks)
    into = chunk + random.choice([0, scratch])
    before = [op for op in exchange[dst] if op.into >= 0 and op.into < into + count and into < op.into + op.count]
    kind = random.choice([recv, recv_reduce])
    if not before or (kind is recv_reduce and all(op.kind is Kind.RECV_REDUCE for op in before)):
        written[dst].update(range(into, into + count))
        exchange[src].append(send(dst, chunk, count))
        exchange[dst].append(kind(src, into, count))


def random_cluster(random: Random, p: int) -> Cluster:
    """Return hosts at random nodes of a mesh. Many speeds are equal, so that many events are simultaneous."""
    rates = random.choice([[1e9], [1e9, 1e9, 4e9], [random.uniform(1e8, 1e10) for _ in range(30)]])
    latencies = random.choice([[0.0], [5e-6], [0.0, 1e-6], [random.uniform(1e-7, 1e-4) for _ in range(30)]])
    switches = random.randint(1, 4)
    hosts = [f"h{i}" for i in range(random.choice([p, p, max(1, p - 1)]))]
    joined = [(f"s{i}", f"s{random.randrange(i)}") for i in range(1, switches)]
    joined += [(host, f"s{random.randrange(switches)}") for host in hosts]
    joined += [(a, b) for a, b in (random.sample([*hosts, "s0"], 2) for _ in range(random.choice([0, 0, 3])))]
    graph: nx.DiGraph[str] = nx.DiGraph()
    for a, b in joined:
        for src, dst in ((a, b), (b, a)):
            graph.add_edge(src, dst, bandwidth=random.choice(rates), latency=random.choice(latencies))
            _make_odd(random, graph.edges[src, dst], rates)
    placed = tuple(random.choice(hosts) for _ in range(p)) if len(hosts) < p else tuple(hosts)
    transport = Transport(
        "random", random.choice([0.0, 3e-6]), random.choice([1.0, 0.9]), random.choice([0.0, 0.0, 1e-9])
    )
    return Cluster("random", graph, placed, transport)


def _make_odd(random: Random, link: dict[str, float], rates: list[float]) -> None:
    """Give some links another bandwidth for several messages, and some an unlimited one."""
    if random.random() < 0.1:
        link["shared_bandwidth"] = random.choice([0.5, 1.5, 1.0]) * random.choice(rates)
    if random.random() < 0.05:
        link["bandwidth"] = inf
        link.pop("shared_bandwidth", None)  # who is alone for no time at all is a matter of the order of events


def random_faults(random: Random, case: Case, longest: float) -> Faults:
    p, edges = case.schedule.world_size, sorted(case.cluster.graph.edges)
    edges = [(a, b) for a, b in edges if (b, a) in edges]
    ranks = [
        RankFault(rank, random.choice([1.0, random.uniform(0.5, 4)]), random.choice([inf, longest * random.random()]))
        for rank in random.sample(range(p), random.choice([0, 0, 1, p]))
    ]
    links = [_random_change(random, random.choice(edges), longest) for _ in range(random.choice([0, 0, 1, 3]))]
    return Faults(
        tuple(ranks),
        tuple(links) if edges else (),
        random.choice([None, _random_jitter(random, longest / 10)]),
        random.choice([None, _random_jitter(random, 1.0)]),
        random.randrange(1 << 64),
    )


def _random_jitter(random: Random, mean: float) -> Jitter:
    return Jitter(random.choice(["uniform", "exponential"]), mean or 1e-6)


def _random_change(random: Random, edge: tuple[str, str], longest: float) -> LinkFault:
    at, share = random.choice([0.0, longest * random.random()]), random.choice([0.0, 0.5, random.uniform(0.01, 1)])
    lasting = random.choice([inf, longest * random.uniform(0.01, 0.5)]) or inf
    return LinkFault(edge, share, at, lasting)


def simulated_by_simpy(case: Case, faults: Faults = NO_FAULTS) -> tuple[Simulation, float]:
    simulation, schedule = Simulation(case.cluster, case.transport, faults), case.schedule
    elapsed = simulation.run(
        simulation.collective(
            rank, programs, Buffer(schedule.algorithm, schedule.world_size, case.n, case.call.itemsize, None), "sum"
        )
        for rank, programs in enumerate(schedule.programs)
    )
    return simulation, elapsed
