"""Virtual ranks in virtual time: clusters, the network, the engine and the training timeline."""

from simcomm.run import run
from simcomm.topology import Cluster, from_links, star, this_machine
from simcomm.training import train

__all__ = ["Cluster", "from_links", "run", "star", "this_machine", "train"]
