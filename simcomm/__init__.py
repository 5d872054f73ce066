"""Virtual ranks in virtual time: clusters, the network, the engine and the training timeline."""

from simcomm.cluster.calibrated import this_machine
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.custom import from_graph, from_links
from simcomm.cluster.files import read_cluster
from simcomm.cluster.presets import preset
from simcomm.cluster.topologies import star
from simcomm.simulate import run
from simcomm.training import train

__all__ = ["Cluster", "from_graph", "from_links", "preset", "read_cluster", "run", "star", "this_machine", "train"]
