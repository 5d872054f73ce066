"""Random networks with and without a bad cable, to try the rule that names what limits a run."""

from dataclasses import dataclass
from random import Random

import simcomm
from collectives.records.limits import RunLimits, find_limits
from collectives.records.trace import Trace
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.topologies import fat_tree, torus, two_level_tree
from simcomm.model.faults import Faults, LinkFault

ALGORITHMS = ("ring", "double_tree", "halving_doubling", "torus", "naive", "hierarchical")
SHARES = (0.1, 0.2, 0.4, 0.55)  # of its bandwidth that a bad cable has


@dataclass(frozen=True)
class Case:
    """What the rule said of a run on a random network, and what it should have said."""

    seed: int
    what: str
    cable: frozenset[str]  # the bad one; empty in a quiet run
    cost: float  # seconds with the bad cable over seconds without
    limits: RunLimits
    named: frozenset[frozenset[str]]

    @property
    def is_harmful(self) -> bool:
        return self.cost >= 1.1

    @property
    def is_named(self) -> bool:
        return self.cable in self.named


def try_case(seed: int, quiet: bool) -> Case:
    """Simulate an all-reduce on a random network, one cable of which is bad unless ``quiet``."""
    random = Random(seed)
    cluster, algorithm = _random_cluster(random), random.choice(ALGORITHMS)
    nbytes = random.choice((1, 4, 8, 32)) << 20
    cable, share = random.choice(sorted(cluster.graph.edges)), random.choice(SHARES)
    program = f"all_reduce/{algorithm}"
    usual = simcomm.run(program, cluster, nbytes, engine="compiled")
    trace = usual
    if not quiet:
        faults = Faults(links=(LinkFault(cable, share),))
        trace = simcomm.run(program, cluster, nbytes, engine="compiled", faults=faults)
    limits = find_limits(trace)
    bad = frozenset[str]() if quiet else frozenset(cable)
    what = f"{cluster.title}, {algorithm}, {nbytes} bytes, {sorted(bad)} at {share}"
    return Case(seed, what, bad, trace.elapsed / usual.elapsed, limits, _named(trace, limits))


def _random_cluster(random: Random) -> Cluster:
    kind = random.choice(("star", "tree", "torus", "fat tree"))
    if kind == "star":
        return simcomm.star(random.choice((6, 8, 12, 16)), "10 Gbit/s", "5 us")
    if kind == "tree":
        return two_level_tree(4, random.choice((2, 4)), "10 Gbit/s", "5 us", random.choice((1.0, 2.0)))
    return torus([4, 4], "10 Gbit/s", "5 us") if kind == "torus" else fat_tree(4, "10 Gbit/s", "5 us")


def _named(trace: Trace, limits: RunLimits) -> frozenset[frozenset[str]]:
    links = [trace.links[link] for cable in limits.cables[: limits.standing_out] for link in cable.links]
    return frozenset(frozenset((link.src, link.dst)) for link in links)
