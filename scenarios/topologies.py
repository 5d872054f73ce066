"""Clusters that a scenario can name, the keys that each takes, and how it is built, routed and filled with ranks."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from collectives.errors import InputError
from simcomm.cluster import placement, topologies
from simcomm.cluster.cluster import IDEAL, Cluster
from simcomm.cluster.custom import from_links
from simcomm.cluster.files import SUFFIXES, read_cluster
from simcomm.cluster.presets import machine_entries, preset
from simcomm.cluster.routing import Routing, ecmp, listed_routes, rail_aware, shortest

if TYPE_CHECKING:
    from scenarios.forms import ClusterForm

HERE = "this-machine"
MOST_RANKS = 65_536
EACH_LINK = ("bandwidth", "latency")


class Topology(NamedTuple):
    """A builder and the keys that it needs and may take; how many ranks it will have room for."""

    build: Callable[..., Cluster]
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    ranks: Callable[[Mapping[str, Any]], int]


TOPOLOGIES = {
    "star": Topology(topologies.star, ("hosts", *EACH_LINK), (), lambda given: given["hosts"]),
    "ring": Topology(topologies.ring, ("hosts", *EACH_LINK), (), lambda given: given["hosts"]),
    "fully-connected": Topology(  # as many links as ranks by half as many: counted like ranks
        topologies.fully_connected, ("hosts", *EACH_LINK), (), lambda given: given["hosts"] ** 2 // 64
    ),
    "torus": Topology(topologies.torus, ("dimensions", *EACH_LINK), (), lambda given: prod(given["dimensions"])),
    "two-level-tree": Topology(
        topologies.two_level_tree,
        ("racks", "hosts_per_rack", *EACH_LINK),
        ("oversubscription",),
        lambda given: given["racks"] * given["hosts_per_rack"],
    ),
    "fat-tree": Topology(topologies.fat_tree, ("ports", *EACH_LINK), (), lambda given: given["ports"] ** 3 // 4),
    "dragonfly": Topology(
        topologies.dragonfly,
        ("hosts_per_router", "routers_per_group", "global_links", *EACH_LINK),
        ("groups",),
        lambda given: (
            given["hosts_per_router"]
            * given["routers_per_group"]
            * given.get("groups", given["routers_per_group"] * given["global_links"] + 1)
        ),
    ),
}
MACHINE_KEYS = ("nodes", "gpus_per_node", *EACH_LINK, "nodes_per_leaf", "oversubscription")
ROUTINGS = {"shortest": shortest, "rail-aware": rail_aware}
PLACEMENTS = {"block": placement.place_in_blocks, "round-robin": placement.place_round_robin}
BUILDER_KEYS = tuple(
    dict.fromkeys(
        ("nodes", "gpus_per_node", *(key for t in TOPOLOGIES.values() for key in (*t.needs, *t.takes)), *MACHINE_KEYS)
    )
)


def is_file(topology: str) -> bool:
    """Whether the name of a topology is that of a file."""
    return topology.endswith(SUFFIXES)


def check_arguments(form: "ClusterForm") -> None:
    """Raises InputError for a key that the chosen kind needs and has not, or has and does not take."""
    given = form.model_dump(include=set(BUILDER_KEYS), exclude_none=True)
    what, needs, takes = _accepted(form)
    for key in needs:
        if key not in given:
            raise InputError(f"{key} is missing; {what} needs {', '.join(needs[:-1])} and {needs[-1]}")
    for key in given:
        if key not in (*needs, *takes):
            raise InputError(f"{key} does not go with {what}; it is an argument of {_owners(key)}")
    if form.topology in TOPOLOGIES and (ranks := TOPOLOGIES[form.topology].ranks(given)) > MOST_RANKS:
        raise InputError(
            f"{what} with {_shown(given)} is too large: {ranks} places for ranks or more, {MOST_RANKS} at most"
        )


def _accepted(form: "ClusterForm") -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    if form.topology in TOPOLOGIES:
        chosen = TOPOLOGIES[form.topology]
        return f'topology = "{form.topology}"', chosen.needs, chosen.takes
    if form.preset is not None:
        return f'preset = "{form.preset}"', (), () if form.preset == HERE else MACHINE_KEYS
    return "topology from a file" if form.topology else "link", (), ()


def _owners(key: str) -> str:
    owners = [f'topology = "{name}"' for name, it in TOPOLOGIES.items() if key in (*it.needs, *it.takes)]
    if key in MACHINE_KEYS:
        owners.append("a preset of the hardware catalogue")
    return " or ".join(owners)


def _shown(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in given.items() if key not in EACH_LINK)


def build_network(form: "ClusterForm", folder: Path) -> Cluster:
    """The cluster of a form that was checked; files are sought in ``folder``. Raises InputError."""
    transport = IDEAL if form.transport == "ideal" else None  # any other needs a calibration
    if form.link:
        ends = ((*link.between, link.bandwidth, link.latency) for link in form.link)
        return from_links(((a, b, bandwidth, latency) for a, b, bandwidth, latency in ends), transport)
    given = form.model_dump(include=set(BUILDER_KEYS), exclude_none=True)
    if form.preset:
        if given.get("nodes", 1) * machine_entries()[form.preset]["gpus"] > MOST_RANKS:
            raise InputError(f"nodes = {given['nodes']} of {form.preset} is too large: {MOST_RANKS} GPUs at most")
        return preset(form.preset, transport=transport, **given)
    assert form.topology is not None
    if is_file(form.topology):
        return read_cluster(folder / Path(form.topology).expanduser(), transport)
    return TOPOLOGIES[form.topology].build(**given, transport=transport)


def routed(cluster: Cluster, form: "ClusterForm") -> Cluster:
    """The cluster with the routing of the form. Raises InputError where that does not work in this network."""
    if form.routing is None and form.route is None:
        return cluster
    policy = _policy(form)
    if form.route:
        policy = listed_routes([route.path for route in form.route], otherwise=policy)
    cluster = replace(cluster, routing=policy)
    cluster.router()  # refuses what this network has no place for
    return cluster


def _policy(form: "ClusterForm") -> Routing:
    name, parameters = form.routing or ("shortest", {})
    if name == "ecmp":
        _check_parameters(name, parameters, ("seed",))
        return ecmp(**{key: int(number) for key, number in parameters.items()})
    _check_parameters(name, parameters, ())
    if name not in ROUTINGS:
        raise InputError(f"routing {name!r} is not known; there are shortest, ecmp and rail-aware")
    return ROUTINGS[name]


def _check_parameters(name: str, parameters: Mapping[str, int | str], known: tuple[str, ...]) -> None:
    for key, number in parameters.items():
        if key not in known:
            raise InputError(f"{key} is no parameter of {name}; there are {', '.join(known) or 'none'}")
        if not isinstance(number, int):
            raise InputError(f"{key} = {number!r} of {name} is no whole number")


def placed(cluster: Cluster, form: "ClusterForm") -> Cluster:
    """The cluster with its ranks where the form says. Raises InputError."""
    if form.placement is None:
        return cluster
    if isinstance(form.placement, list):
        return placement.place_on(cluster, form.placement)
    if form.placement not in PLACEMENTS:
        raise InputError(f"{form.placement!r} is not known; there are {', '.join(PLACEMENTS)}, or a list of hosts")
    return PLACEMENTS[form.placement](cluster)
