"""A network without a question: the cluster and the faults of a scenario, or of keys on a line."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import model_validator

from collectives.errors import InputError
from collectives.quoting import cut
from scenarios import toml_files
from scenarios.forms import ScenarioForm
from scenarios.loader import Builder, builder_of
from scenarios.messages import read_form
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.placement import make_room
from simcomm.model.faults import Faults

HERE = "this-machine"


class NetworkOnlyForm(ScenarioForm):
    """A whole file of which only the network is asked."""

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        return self


class ReadNetwork(NamedTuple):
    """A cluster and its faults."""

    cluster: Cluster
    faults: Faults


def read_network(text: str, ranks: int, changes: Sequence[str] = ()) -> ReadNetwork:
    """Return the network of a scenario, a preset, or keys like ``topology=star hosts=8``, for so many ranks.

    ``changes`` are more such keys; one without a dot is a key of ``[cluster]``. A larger cluster is used in part; a
    smaller one gets more hosts on its switches. Raises InputError that names what was given and what would be accepted.

    >>> read_network("topology=star hosts=8 bandwidth='10 Gbit/s' latency='5 us'", ranks=4).cluster.world_size
    4
    """
    keys = [*_split(text), *changes] if "=" in text else list(changes)
    overrides = [key if "." in key.partition("=")[0] else f"cluster.{key}" for key in keys]
    table: dict[str, Any] = {}
    if "=" in text:
        builder = Builder(" ".join(keys), Path(), Path())
    elif text == HERE:
        builder, table = Builder(HERE, Path(), Path()), {"cluster": {"preset": HERE}}
    else:
        path, builder = builder_of(text, overrides)
        table = toml_files.read(path)
    for override in overrides:
        toml_files.override(table, override)
    cluster = table.get("cluster")
    if isinstance(cluster, dict) and cluster.get("preset") == HERE:
        cluster["world_size"] = ranks
    form = read_form(table, builder.where, NetworkOnlyForm)
    found = builder.build_cluster(form.cluster, "cluster", form.nccl)
    try:
        found = make_room(found, ranks)
    except InputError as error:
        raise InputError(f"{builder.where}: {error}") from error
    return ReadNetwork(found, builder.find_faults(form.faults, found, "faults"))


def _split(text: str) -> list[str]:
    """Return the words of a line of keys. Raise InputError for a quote without end."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"{cut(text)}: {error}") from error
