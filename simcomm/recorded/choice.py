"""What carries a recording on a cluster, by the cluster's model of time."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from collectives.calibration.calibration import Calibration, check_calibration
from simcomm.cluster.cluster import Cluster
from simcomm.recorded.carriers import HopCarrier, NetworkCarrier

CARRIERS: dict[str, Any] = {"network": NetworkCarrier, "emulated": NetworkCarrier, "measured": HopCarrier}


def find_carrier(
    cluster: Cluster, algorithms: Mapping[str, str], calibration: Calibration | None = None
) -> NetworkCarrier:
    """Return what carries the calls of a recording on a cluster. Raise InputError for an algorithm that is not known.

    >>> import simcomm
    >>> find_carrier(simcomm.star(2, "8 Gbit/s", "1 us"), {"all_reduce": "chain"}).algorithms
    {'all_reduce': 'chain'}
    """
    if cluster.time_model == "nccl":  # slow to import
        make = import_module("simcomm.recorded.nccl_carrier").NcclCarrier
    else:
        make = CARRIERS[cluster.time_model]
    found: NetworkCarrier = make(cluster, check_calibration(calibration), dict(algorithms))
    return found
