"""A network without a question: the cluster and the faults of a scenario, or of keys on a line."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import model_validator

from collectives.errors import InputError
from collectives.quoting import cut, quote, suggest
from scenarios import toml_files
from scenarios.cluster_sections import DEFAULT_RANKS, HERE
from scenarios.loader import Builder, builder_of
from scenarios.messages import read_section
from scenarios.sections import ScenarioSection
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.files import SUFFIXES
from simcomm.cluster.hardware import machine_entries
from simcomm.cluster.placement import make_room
from simcomm.model.faults import Faults


class NetworkOnlySection(ScenarioSection):
    """A whole file of which only the network is asked."""

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        return self


class ReadNetwork(NamedTuple):
    """A cluster and its faults."""

    cluster: Cluster
    faults: Faults


def read_network(text: str, ranks: int = 0, changes: Sequence[str] = ()) -> ReadNetwork:
    """Return the network that a word or keys describe, with so many ranks; 0: as many as it has.

    The word is a scenario, a machine of the hardware catalogue, whose GPUs NCCL joins, ``this-machine``, or a graph
    file. Keys look like ``topology=star hosts=8``. ``changes`` are more such keys; one without a dot is a key of
    ``[cluster]``. A larger cluster is used in part; a smaller one gets more hosts on its switches. Raises InputError
    that names what was given and what would be accepted.

    >>> read_network("topology=star hosts=8 bandwidth='10 Gbit/s' latency='5 us'", ranks=4).cluster.world_size
    4
    >>> read_network("dgx-h100", ranks=16).cluster.title
    '2 x NVIDIA DGX H100'
    """
    keys = [*_split(text), *changes] if "=" in text else list(changes)
    overrides = [key if "." in key.partition("=")[0] else f"cluster.{key}" for key in keys]
    table, builder = _read_word(text, ranks, overrides)
    toml_files.apply_overrides(table, overrides, builder.where)
    cluster = table.get("cluster")
    if isinstance(cluster, dict) and cluster.get("preset") == HERE:
        cluster["world_size"] = ranks or DEFAULT_RANKS
    section = read_section(table, builder.where, NetworkOnlySection)
    found = builder.build_cluster(section.cluster, "cluster", section.nccl)
    try:
        found = make_room(found, ranks) if ranks else found
    except InputError as error:
        raise InputError(f"{builder.where}: {error}") from error
    return ReadNetwork(found, builder.find_faults(section.faults, found, "faults"))


def _read_word(text: str, ranks: int, overrides: Sequence[str]) -> tuple[dict[str, Any], Builder]:
    """Return the tables that a word stands for, and what builds them. Raise InputError for an unknown word."""
    machines, here = machine_entries(), Builder(" ".join(overrides) if "=" in text else text, Path(), Path())
    if "=" in text:
        return {}, here
    if text == HERE:
        return {"cluster": {"preset": HERE}}, here
    if text in machines:
        nodes = -(-ranks // int(machines[text]["gpus"])) or 1
        return {"cluster": {"preset": text, "transport": "nccl", "nodes": nodes}}, here
    if Path(text).suffix in SUFFIXES:
        return {"cluster": {"topology": text}}, here
    if text not in toml_files.shipped() and Path(text).suffix != ".toml" and not Path(text).exists():
        raise InputError(
            f"unknown scenario or machine {quote(text)}; {suggest(text, [*toml_files.shipped(), *machines, HERE])}"
        )
    path, builder = builder_of(text, overrides)
    return toml_files.read(path), builder


def _split(text: str) -> list[str]:
    """Return the words of a line of keys. Raise InputError for a quote without end."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"{cut(text)}: {error}") from error
