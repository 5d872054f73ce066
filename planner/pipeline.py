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

Key = tuple[bool, int, int]  # is_backward, stage, microbatch


class StageRun(NamedTuple):
    """The forward or backward pass of one microbatch through one of a device's stages."""

    is_backward: bool
    chunk: int  # index among the device's stages
    microbatch: int


def order_of(schedule: str, device: int, devices: int, microbatches: int, virtual: int = 1) -> list[StageRun]:
    """Return the order of a device's forward and backward passes.

    Raise InputError for an interleaved schedule if the number of microbatches is not a multiple of ``devices``.

    >>> ["FB"[work.is_backward] + str(work.microbatch) for work in order_of("1f1b", 1, 2, 3)]
    ['F0', 'B0', 'F1', 'B1', 'F2', 'B2']
    """
    if schedule == "interleaved":
        if microbatches % devices:
            raise InputError(
                f"interleaved: microbatches must be a multiple of the {devices} stages, not {microbatches}"
            )
        forward = [_interleaved(number, devices, virtual) for number in range(microbatches * virtual)]
        backward = [StageRun(True, virtual - 1 - run.chunk, run.microbatch) for run in forward]
        ahead = 2 * (devices - device - 1) + (virtual - 1) * devices
    else:
        forward = [StageRun(False, 0, number) for number in range(microbatches)]
        backward = [StageRun(True, 0, number) for number in range(microbatches)]
        ahead = devices - device - 1 if schedule == "1f1b" else microbatches
    ahead = min(ahead, len(forward))
    runs = forward[:ahead]
    for number, run in enumerate(forward[ahead:]):
        runs += [run, backward[number]]
    return runs + backward[len(forward) - ahead :]


def _interleaved(number: int, devices: int, virtual: int) -> StageRun:
    group, place = divmod(number, devices * virtual)
    return StageRun(False, place // devices, group * devices + place % devices)


class PlacedRun(NamedTuple):
    """A forward or backward pass of a microbatch through a stage, its device, and the pass that must end first."""

    device: int
    is_backward: bool
    stage: int
    microbatch: int
    needs: Key | None


@lru_cache(maxsize=256)
def list_runs(schedule: str, devices: int, microbatches: int, virtual: int = 1) -> tuple[PlacedRun, ...]:
    """Return the passes of all devices, each after the pass that it needs. Stage k is on device k modulo ``devices``.

    >>> [(run.device, run.is_backward) for run in list_runs("1f1b", 2, 1)]
    [(0, False), (1, False), (1, True), (0, True)]
    """
    orders = [order_of(schedule, device, devices, microbatches, virtual) for device in range(devices)]
    runs, done, place, stages = list[PlacedRun](), set[Key](), [0] * devices, devices * virtual
    while len(runs) < 2 * stages * microbatches:
        for device in range(devices):
            while place[device] < len(orders[device]):
                run = orders[device][place[device]]
                stage = run.chunk * devices + device
                needs = _needed(run, stage, stages)
                if needs is not None and needs not in done:
                    break
                done.add((run.is_backward, stage, run.microbatch))
                runs.append(PlacedRun(device, run.is_backward, stage, run.microbatch, needs))
                place[device] += 1
    return tuple(runs)


def _needed(run: StageRun, stage: int, stages: int) -> Key | None:
    if not run.is_backward:
        return (False, stage - 1, run.microbatch) if stage else None
    return (True, stage + 1, run.microbatch) if stage + 1 < stages else (False, stage, run.microbatch)


def pipeline_seconds(
    schedule: str, forward: Array, backward: Array, send: Array, devices: int, microbatches: int
) -> Array:
    """Return the time in seconds of pipelines.

    ``forward`` and ``backward`` have a row per training run and a column per stage.

    ``send`` has the seconds of the message after each stage. A device sends messages in the same direction one after
    another.

    >>> one = np.ones((1, 4))
    >>> float(pipeline_seconds("1f1b", one, 2 * one, np.zeros((1, 3)), 4, 8)[0])
    33.0
    """
    stages, free = forward.shape[1], np.zeros((len(forward), devices))
    ready, sending = dict[Key, Array](), dict[tuple[int, bool], Array]()
    for run in list_runs(schedule, devices, microbatches, stages // devices):
        begin = free[:, run.device].copy() if run.needs is None else np.maximum(free[:, run.device], ready[run.needs])
        end = begin + (backward if run.is_backward else forward)[:, run.stage]
        free[:, run.device] = arrived = end
        if 0 <= (behind := run.stage - run.is_backward) < stages - 1:
            way = (run.device, run.is_backward)
            sending[way] = arrived = np.maximum(end, sending.get(way, 0.0)) + send[:, behind]
        ready[run.is_backward, run.stage, run.microbatch] = arrived
    return np.asarray(free.max(axis=1))
