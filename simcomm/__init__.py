"""Virtual ranks in virtual time: clusters, the network, the engine and the training timeline."""

from simcomm.graph_files import read_cluster
from simcomm.hardware import preset
from simcomm.run import run
from simcomm.topology import Cluster, from_graph, from_links, star, this_machine
from simcomm.training import train

__all__ = ["Cluster", "from_graph", "from_links", "preset", "read_cluster", "run", "star", "this_machine", "train"]
