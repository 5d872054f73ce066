"""Virtual ranks in virtual time: clusters, what both engines obey, the two engines, and what answers on them.

Folders import one way, in this order: ``cluster`` (what is described: nodes, links, routes, where ranks live),
``model`` (what both engines obey: sharing of links, trouble, jitter), ``reference`` and ``compiled`` (the engines), and
the modules beside them (a collective, a training, the choice of an algorithm).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from simcomm.cluster.calibrated import this_machine
from simcomm.cluster.cluster import Cluster, with_usable_bandwidths
from simcomm.cluster.custom import from_graph, from_links
from simcomm.cluster.files import read_cluster
from simcomm.cluster.machines import cube_mesh, nvlink_pairs, nvswitch, pcie_tree
from simcomm.cluster.placement import place_in_blocks, place_on, place_round_robin
from simcomm.cluster.presets import preset
from simcomm.cluster.routing import ecmp, listed_routes, rail_aware, shortest
from simcomm.cluster.topologies import dragonfly, fat_tree, fully_connected, ring, star, torus, two_level_tree
from simcomm.model.jitter import Jitter
from simcomm.model.trouble import LinkTrouble, RankTrouble, Trouble
from simcomm.simulate import run, train

if TYPE_CHECKING:
    from simcomm.recorded.replay import replay
    from simcomm.selection import choose
    from simcomm.sweeping import sweep

__all__ = [
    "Cluster",
    "Jitter",
    "LinkTrouble",
    "RankTrouble",
    "Trouble",
    "choose",
    "cube_mesh",
    "dragonfly",
    "ecmp",
    "fat_tree",
    "from_graph",
    "from_links",
    "fully_connected",
    "listed_routes",
    "nvlink_pairs",
    "nvswitch",
    "pcie_tree",
    "place_in_blocks",
    "place_on",
    "place_round_robin",
    "preset",
    "rail_aware",
    "read_cluster",
    "replay",
    "ring",
    "run",
    "shortest",
    "star",
    "sweep",
    "this_machine",
    "torus",
    "train",
    "two_level_tree",
    "with_usable_bandwidths",
]


_LATER = {  # slow to import, and not always needed
    "choose": "simcomm.selection",
    "replay": "simcomm.recorded.replay",
    "sweep": "simcomm.sweeping",
}


def __getattr__(name: str) -> Any:
    """Import ``choose``, ``replay`` and ``sweep`` when they are first asked for."""
    if name in _LATER:
        found = getattr(import_module(_LATER[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all names to complete, also those that are imported when they are first used."""
    return sorted({*globals(), *__all__})
