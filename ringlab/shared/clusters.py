"""The cluster that a word means: a scenario's, ready-made machines, this machine, or a graph in a file."""

from dataclasses import replace
from pathlib import Path

import scenarios
import simcomm
from collectives.errors import InputError
from collectives.quoting import quote, suggest
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.files import SUFFIXES, read_cluster
from simcomm.cluster.presets import machine_entries
from simcomm.nccl.clusters import NcclCluster, nccl_cluster
from simcomm.nccl.descriptions import describe_preset

HERE = "this-machine"


def find_cluster(word: str, ranks: int) -> Cluster:
    """Return what ``word`` names, with so many ranks; 0: as many as it has.

    It is the name or file of a scenario, whose cluster counts; a machine of the catalogue, of which as many are taken
    as are needed and whose GPUs NCCL joins; ``this-machine``; or a graph as .graphml or .json. Raises InputError.

    >>> find_cluster("dgx-h100", 16).title, find_cluster("star8", 4).world_size
    ('2 hosts of 8 x H100 SXM', 4)
    """
    if word == HERE:
        return simcomm.this_machine(ranks or 2)
    machines = machine_entries()
    if word in machines:
        gpus = int(machines[word]["gpus"])
        nodes = -(-ranks // gpus) if ranks else 1
        return nccl_cluster(describe_preset(word, nodes, min(gpus, ranks or gpus)))
    if Path(word).suffix in SUFFIXES:
        return with_ranks(read_cluster(word), ranks)
    if word not in scenarios.shipped() and Path(word).suffix != ".toml":
        known = [*scenarios.shipped(), *machines, HERE]
        raise InputError(f"no scenario or machine is called {quote(word)}; {suggest(word, known)}")
    return with_ranks(scenarios.load(word).cluster, ranks)


def with_ranks(cluster: Cluster, ranks: int) -> Cluster:
    """Return the cluster with so many ranks, on its first hosts. Raise InputError where it has fewer."""
    if ranks in (0, cluster.world_size):
        return cluster
    if isinstance(cluster, NcclCluster):
        system = cluster.system
        nodes = -(-ranks // system.gpus)
        if nodes > system.nodes:
            raise InputError(f"{ranks} ranks do not fit: {cluster.title} has {cluster.world_size} GPUs")
        return nccl_cluster(replace(system, nodes=nodes, gpus=min(system.gpus, ranks)), cluster.settings)
    return cluster.on_first(ranks)
