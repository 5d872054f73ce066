"""Which model finds times on a cluster: the one place that knows."""

from collections.abc import Callable
from importlib import import_module

from collectives.records.calibration import Calibration, check_calibration
from simcomm.cluster.cluster import Cluster
from simcomm.time_models.time_model import TimeModel

MODELS = {
    "network": "NetworkModel",
    "measured": "MeasuredModel",
    "emulated": "EmulatedModel",
    "nccl": "NcclModel",
}


def time_model(cluster: Cluster, calibration: Calibration | None = None) -> TimeModel:
    """Return what knows how long collectives and trainings take on a cluster. Raise InputError for no Calibration.

    Where one is needed and none is given, the cached one is taken.

    >>> import simcomm
    >>> type(time_model(simcomm.this_machine(2))).__name__
    'MeasuredModel'
    """
    name = cluster.time_model
    make: Callable[..., TimeModel] = getattr(import_module(f"simcomm.time_models.{name}_model"), MODELS[name])
    return make(cluster, check_calibration(calibration))
