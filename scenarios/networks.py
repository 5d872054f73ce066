"""Read a cluster and its faults from a scenario file or from keys on the command line. No workload is needed."""

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
from simcomm.cluster.custom import SUFFIX
from simcomm.cluster.hardware import machine_entries
from simcomm.cluster.placement import make_room
from simcomm.model.faults import Faults


class NetworkOnlySection(ScenarioSection):
    """A scenario file that is read only for its cluster, its faults and its NCCL settings."""

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        return self


class ReadNetwork(NamedTuple):
    cluster: Cluster
    faults: Faults


def read_network(text: str, ranks: int = 0, changes: Sequence[str] = ()) -> ReadNetwork:
    """Return the cluster and the faults that ``text`` describes, with ``ranks`` ranks.

    ``text`` is the name or file of a scenario, a preset from the hardware catalog, ``this-machine``, or a graph file.
    It can also set keys, such as ``topology=star hosts=8``. ``changes`` sets further keys. A key without a dot belongs
    to ``[cluster]``. Raise InputError if ``text`` does not describe a network, or if a key is invalid.

    If ``ranks`` is 0, each host has one rank. A preset then has one rank per GPU of one machine, and ``this-machine``
    has two ranks. If there are fewer ranks than hosts, hosts stay unused. If there are more, hosts are added to the
    switches.

    >>> read_network("topology=star hosts=8 bandwidth='10 Gbit/s' latency='5 us'", ranks=4).cluster.world_size
    4
    >>> read_network("dgx-h100", ranks=16).cluster.title
    '2 x NVIDIA DGX H100'
    """
    try:
        pairs = [*(shlex.split(text) if "=" in text else ()), *changes]
    except ValueError as error:
        raise InputError(f"{cut(text)}: {error}") from error
    overrides = [pair if "." in pair.partition("=")[0] else f"cluster.{pair}" for pair in pairs]
    table, builder = _read_word(text, ranks, overrides)
    toml_files.apply_overrides(table, overrides, builder.where)
    keys = table.get("cluster")
    if isinstance(keys, dict) and keys.get("preset") == HERE:
        keys["world_size"] = ranks or DEFAULT_RANKS
    section = read_section(table, builder.where, NetworkOnlySection)
    cluster = builder.build_cluster(section.cluster, "cluster", section.nccl)
    try:
        cluster = make_room(cluster, ranks) if ranks else cluster
    except InputError as error:
        raise InputError(f"{builder.where}: {error}") from error
    return ReadNetwork(cluster, builder.find_faults(section.faults, cluster, "faults"))


def _read_word(text: str, ranks: int, overrides: Sequence[str]) -> tuple[dict[str, Any], Builder]:
    machines, here = machine_entries(), Builder(" ".join(overrides) if "=" in text else text, Path(), Path())
    if "=" in text:
        return {}, here
    if text == HERE:
        return {"cluster": {"preset": HERE}}, here
    if text in machines:
        nodes = -(-ranks // int(machines[text]["gpus"])) or 1
        return {"cluster": {"preset": text, "transport": "nccl", "nodes": nodes}}, here
    if Path(text).suffix == SUFFIX:
        return {"cluster": {"topology": text}}, here
    if text not in toml_files.shipped() and Path(text).suffix != ".toml" and not Path(text).exists():
        raise InputError(
            f"unknown scenario or machine {quote(text)}; {suggest(text, [*toml_files.shipped(), *machines, HERE])}"
        )
    builder = builder_of(text, overrides)
    return toml_files.tables(builder.path), builder
