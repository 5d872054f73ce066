"""What words about a cluster or a machine mean: a scenario, ready-made machines, this one, a graph in a file, keys."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import scenarios
import simcomm
from collectives.errors import InputError
from collectives.quoting import close_names, quote, suggest
from collectives.units import TomlFloat
from scenarios import shipped
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.files import SUFFIXES, read_cluster
from simcomm.cluster.hardware import machine_entries
from simcomm.cluster.placement import make_room
from simcomm.nccl.clusters import NcclCluster, nccl_cluster
from simcomm.nccl.descriptions import describe_preset, own_machines, warn_of_bare_rates

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
        raise InputError(f"unknown scenario or machine {quote(word)}; {suggest(word, known)}")
    return with_ranks(scenarios.load(word).cluster, ranks)


def with_ranks(cluster: Cluster, ranks: int) -> Cluster:
    """Return the cluster with so many ranks: on its first hosts, or with more beside them. Raise InputError."""
    if ranks in (0, cluster.world_size):
        return cluster
    if isinstance(cluster, NcclCluster):
        system = cluster.system
        nodes = -(-ranks // system.gpus)
        if nodes > system.nodes:
            raise InputError(f"{ranks} ranks do not fit on {cluster.title}, which has {cluster.world_size} GPUs")
        return nccl_cluster(replace(system, nodes=nodes, gpus=min(system.gpus, ranks)), cluster.settings)
    return make_room(cluster, ranks)


def machine_line(name: str) -> dict[str, Any]:
    """Return the beginning of a line: a described machine, or one of the hardware catalogue. Raise InputError."""
    machines = own_machines()
    if name in machines:
        return {"machine": name}
    described = [machine for machine, line in machines.items() if line.get("preset") == name]
    if described:
        return {"machine": described[0]}
    if name in shipped():
        raise InputError(f"--system {name} is a scenario; pass it as the first argument instead")
    close = close_names(name, [*machines, *machine_entries()])
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(f"--system {name}: unknown machine; {meant}`ringlab list hardware` lists all machines")


def parse_keys(keys: Sequence[str]) -> Mapping[str, Any]:
    """Return ``key=value`` texts as a line's keys; a value that TOML does not know is a text."""
    found: dict[str, Any] = {}
    for text in keys:
        key, equals, value = text.partition("=")
        if not equals or not key.strip().isidentifier():
            raise InputError(f"--set {text}: expected KEY=VALUE, for example 'nic=25 Gbit/s'")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}", parse_float=TomlFloat)["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = value.strip()
    warn_of_bare_rates("--set", found)
    return found
