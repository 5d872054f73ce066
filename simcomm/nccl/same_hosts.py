"""What is peculiar to the hosts of a cluster: factors on time, learned from its other systems.

Two boxes of one author, or two tables of one machine, miss a prediction in the same direction more often than not: a
slot with four lanes, an old BIOS, a crowded fabric. A description names such hosts with ``cluster``; for each such word
the fit keeps a factor for small, middle and large sizes, apart for one node and for several. Its prior is 1.
"""

from math import log

import numpy as np

from simcomm.nccl.channels import Floats
from simcomm.nccl.parameters import Parameter, Parameters

CENTRES = {"small": 2.0**13, "mid": 2.0**20, "large": 2.0**27}  # bytes
SPREAD = 0.5


def host_parameters(cluster: str, nodes: int) -> list[str]:
    """Return the names of a cluster's factors, for small, middle and large sizes.

    >>> host_parameters("kalavai", 1)[0]
    'hosts.kalavai.one.small'
    """
    return [f"hosts.{cluster}.{'one' if nodes == 1 else 'several'}.{name}" for name in CENTRES]


def define_host_parameters(cluster: str, nodes: int) -> list[Parameter]:
    """Return these factors as parameters with their prior."""
    meaning = f"time on {'one node' if nodes == 1 else 'several nodes'} of the hosts {cluster}, times that of others"
    return [Parameter(name, 1.0, 1.0, SPREAD, "", meaning, "fitted") for name in host_parameters(cluster, nodes)]


def host_factors(cluster: str | None, nodes: int, sizes: Floats, values: Parameters) -> Floats | float:
    """Return the factors on time at sizes in bytes; 1 where nothing is known of the hosts."""
    if cluster is None:
        return 1.0
    logs = [log(values.get(name, 1.0)) for name in host_parameters(cluster, nodes)]
    factors: Floats = np.exp(np.interp(np.log(sizes), [log(size) for size in CENTRES.values()], logs))
    return factors
