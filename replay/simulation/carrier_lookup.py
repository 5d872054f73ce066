"""Look up the carrier of a recording's calls on a cluster."""

from collections.abc import Mapping

from collectives.declaration import Algorithm
from collectives.records.calibration import Calibration, check_calibration
from replay.simulation.carriers import MeasuredCarrier, NetworkCarrier
from simcomm.cluster.cluster import Cluster


def find_carrier(
    cluster: Cluster, algorithms: Mapping[str, str | Algorithm], calibration: Calibration | None = None
) -> NetworkCarrier:
    """Return the carrier of a recording's calls on a cluster. Raise InputError for an unknown algorithm.

    >>> import simcomm
    >>> find_carrier(simcomm.star(2, "8 Gbit/s", "1 us"), {"all_reduce": "chain"}).algorithms
    {'all_reduce': 'chain'}
    """
    make: type[NetworkCarrier] = MeasuredCarrier if cluster.performance_model == "measured" else NetworkCarrier
    if cluster.performance_model == "nccl":
        from replay.simulation.nccl_carrier import NcclCarrier  # slow to import

        make = NcclCarrier
    return make(cluster, check_calibration(calibration), dict(algorithms))
