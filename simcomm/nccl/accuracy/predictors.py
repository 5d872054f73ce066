"""What is judged: NCCL's model with its frozen parameters, and NCCL's bare tuner formula as a baseline."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from simcomm.nccl.accuracy.compare import Predictor, Times
from simcomm.nccl.choice import available
from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.descriptions import System
from simcomm.nccl.parameters import Parameters
from simcomm.nccl.predict import interval_log_limits, predict_seconds
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.tuner import tuner_times

Floats = NDArray[np.float64]


def model_predictor(parameters: Mapping[str, Parameters]) -> Predictor:
    """Return the model with the parameters of each system by slug; where a system has none, those that are shipped."""

    def predict(system: System, collective: str, nbytes: Floats) -> Times:
        seconds = predict_seconds(system, collective, nbytes, parameters=parameters.get(system.slug))
        below, above = np.exp(interval_log_limits(system, nbytes))
        return Times(seconds, seconds / below, seconds * above)

    return predict


def tuner_formula(system: System, collective: str, nbytes: Floats) -> Floats | None:
    """Return the least time that NCCL's tuner reckons with for any choice that it has; None where it has no formula.

    The formula is for choosing, not for predicting: it counts neither launches nor the rise to full bandwidth. It knows
    no all_to_all and no send and receive, and no MPI on processors.
    """
    if system.gpu.generation == "cpu" or collective in ("all_to_all", "send_recv"):
        return None
    comm = make_communicator(system, NcclSettings())
    choices = [choice for choice, reason in available(comm, collective).items() if not reason]
    least: Floats = np.min([tuner_times(comm, collective, choice, nbytes) for choice in choices], axis=0)
    return least / 1e6
