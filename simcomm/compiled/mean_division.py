"""What the mean costs at the end: every rank that holds reduced data divides it."""

import numpy as np

from collectives.request import reduced_counts
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.model.trouble import DIVISION


def division_seconds(inputs: EngineInput) -> Floats:
    """Return the seconds that each rank takes to divide what it holds."""
    schedule, request = inputs.schedule, inputs.request
    elements = reduced_counts(request.spec, schedule.world_size, schedule.root, request.elements)
    seconds = inputs.transport.gamma * request.itemsize * elements
    if not inputs.trouble.ranks and inputs.trouble.compute is None:
        return seconds
    ranks = np.arange(schedule.world_size)
    return seconds * inputs.trouble.slowdown(inputs.index, ranks, DIVISION, schedule.steps)
