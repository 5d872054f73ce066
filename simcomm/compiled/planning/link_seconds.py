"""What the links of a cluster need for all bytes that a schedule has cross them, whoever sends them when."""

import numpy as np

from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import Kind
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.cyclic_plan import distances
from simcomm.compiled.planning.engine_input import EngineInput


def busiest_link_seconds(inputs: EngineInput) -> float:
    """Return seconds that no run goes below: a message's least delay, and then all bytes over the busiest link.

    Where a schedule says once what all ranks say, each chunk counts as the shortest. Raises TooLarge as an engine does.
    """
    nbytes, routes = _bytes_of_pairs(inputs), inputs.routes
    if len(nbytes) == 0:
        return 0.0
    hops = np.repeat(nbytes, np.diff(routes.first_hop)) * routes.hop_weight
    loads = np.bincount(routes.hop_link, weights=hops, minlength=len(routes.alone))
    return float(routes.delay.min() + (loads / np.maximum(routes.alone, routes.shared)).max(initial=0.0))


def _bytes_of_pairs(inputs: EngineInput) -> Floats:
    """Return the bytes that each pair of ranks sends, or fewer; [pairs]."""
    schedule = inputs.schedule
    if not isinstance(schedule, SymmetricSchedule):
        messages = inputs.schedule_plan.plan.messages
        return np.bincount(messages["route"], weights=messages["nbytes"], minlength=len(inputs.pairs.src))
    return np.tile(_bytes_by_distance(schedule, inputs), schedule.world_size)


def _bytes_by_distance(schedule: SymmetricSchedule, inputs: EngineInput) -> Floats:
    """Return the bytes that a rank sends to those at each distance, or fewer; [distances]."""
    sends = np.flatnonzero(schedule.kind == Kind.SEND)
    shortest = inputs.request.elements // schedule.chunks * inputs.request.itemsize
    every = distances(schedule)
    number = np.searchsorted(every, schedule.peer[sends])
    return np.bincount(number, weights=schedule.count[sends] * float(shortest), minlength=len(every))
