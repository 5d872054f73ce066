from simcomm.cluster.calibrated import this_machine as this_machine
from simcomm.cluster.cluster import Cluster as Cluster
from simcomm.cluster.cluster import with_usable_bandwidths as with_usable_bandwidths
from simcomm.cluster.custom import from_graph as from_graph
from simcomm.cluster.custom import from_links as from_links
from simcomm.cluster.custom import read_cluster as read_cluster
from simcomm.cluster.hardware import preset as preset
from simcomm.cluster.placement import place_in_blocks as place_in_blocks
from simcomm.cluster.placement import place_on as place_on
from simcomm.cluster.placement import place_round_robin as place_round_robin
from simcomm.cluster.routing import ecmp as ecmp
from simcomm.cluster.routing import shortest as shortest
from simcomm.cluster.topologies import fat_tree as fat_tree
from simcomm.cluster.topologies import fully_connected as fully_connected
from simcomm.cluster.topologies import ring as ring
from simcomm.cluster.topologies import star as star
from simcomm.cluster.topologies import torus as torus
from simcomm.cluster.topologies import two_level_tree as two_level_tree
from simcomm.model.faults import Faults as Faults
from simcomm.model.faults import Jitter as Jitter
from simcomm.model.faults import LinkFault as LinkFault
from simcomm.model.faults import RankFault as RankFault
from simcomm.selection import choose as choose
from simcomm.simulate import run as run
from simcomm.simulate import train as train

__all__: list[str]
