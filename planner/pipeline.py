"""Compute the order of microbatches on each pipeline stage, and the time of a step for many pipelines at once.

GPipe: Huang et al. (https://arxiv.org/abs/1811.06965). 1F1B and interleaved: Narayanan et al.
(https://arxiv.org/abs/2104.04473), section 2.2. Pipelines with the same schedule, stages and microbatches have the same
order. One loop over that order computes all of them, with one array element per training run.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from collectives.errors import InputError
from planner.hosts import Array


class Pass(NamedTuple):
    """The forward or backward pass of one microbatch through a stage. Stage ``k`` is on device ``k % devices``."""

    is_backward: bool
    stage: int
    microbatch: int

    def needs(self, stages: int) -> "Pass | None":
        """Return the pass that must end before this one; None for a forward pass of the first stage."""
        if not self.is_backward:
            return self._replace(stage=self.stage - 1) if self.stage else None
        is_last = self.stage + 1 == stages
        return Pass(False, self.stage, self.microbatch) if is_last else self._replace(stage=self.stage + 1)


def order_of(schedule: str, device: int, devices: int, microbatches: int, virtual: int = 1) -> list[Pass]:
    """Return the passes of a device in execution order.

    Raise InputError for an interleaved schedule if the number of microbatches is not a multiple of ``devices``.

    >>> ["FB"[work.is_backward] + str(work.microbatch) for work in order_of("1f1b", 1, 2, 3)]
    ['F0', 'B0', 'F1', 'B1', 'F2', 'B2']
    """
    if schedule == "interleaved" and microbatches % devices:
        raise InputError(f"interleaved: microbatches must be a multiple of the {devices} stages, not {microbatches}")
    ahead = {"1f1b": devices - device - 1, "interleaved": 2 * (devices - device - 1) + (virtual - 1) * devices}
    width = devices if schedule == "interleaved" else microbatches  # microbatches of a stage, one after the other
    places = [
        (chunk, first + number)
        for first in range(0, microbatches, width)
        for chunk in range(virtual)
        for number in range(width)
    ]
    forward = [Pass(False, chunk * devices + device, microbatch) for chunk, microbatch in places]
    backward = [Pass(True, (virtual - 1 - chunk) * devices + device, microbatch) for chunk, microbatch in places]
    early = min(ahead.get(schedule, microbatches), len(forward))
    pairs = zip(forward[early:], backward, strict=False)
    return [*forward[:early], *(work for pair in pairs for work in pair), *backward[len(forward) - early :]]


@lru_cache(maxsize=256)
def list_passes(
    schedule: str, devices: int, microbatches: int, virtual: int = 1
) -> tuple[tuple[Pass, Pass | None], ...]:
    """Return pairs of a pass and the pass that it needs, for all devices. A needed pass comes before its successor.

    >>> [(work.stage, work.is_backward) for work, _ in list_passes("1f1b", 2, 1)]
    [(0, False), (1, False), (1, True), (0, True)]
    """
    left = [order_of(schedule, device, devices, microbatches, virtual)[::-1] for device in range(devices)]
    done, stages = dict[Pass | None, Pass | None]({None: None}), devices * virtual
    while any(left):
        for passes in left:
            while passes and (needed := passes[-1].needs(stages)) in done:
                done[passes.pop()] = needed
    return tuple((work, needed) for work, needed in done.items() if work is not None)


def pipeline_seconds(
    schedule: str, forward: Array, backward: Array, send: Array, devices: int, microbatches: int
) -> Array:
    """Return the step time in seconds of the pipeline of each training run.

    ``forward`` and ``backward`` have a row per training run and a column per stage. ``send`` has the seconds of the
    message after each stage. A device sends messages in the same direction one after another.

    >>> one = np.ones((1, 4))
    >>> float(pipeline_seconds("1f1b", one, 2 * one, np.zeros((1, 3)), 4, 8)[0])
    33.0
    """
    stages, free = forward.shape[1], np.zeros((len(forward), devices))
    ready, sending = dict[Pass | None, Array]({None: np.zeros(len(forward))}), dict[tuple[int, bool], Array]()
    for work, needed in list_passes(schedule, devices, microbatches, stages // devices):
        device, seconds = work.stage % devices, backward if work.is_backward else forward
        end = np.maximum(free[:, device], ready[needed]) + seconds[:, work.stage]
        free[:, device] = ready[work] = end
        if 0 <= (behind := work.stage - work.is_backward) < stages - 1:
            way = (device, work.is_backward)
            sending[way] = ready[work] = np.maximum(end, sending.get(way, 0.0)) + send[:, behind]
    return np.asarray(free.max(axis=1))
