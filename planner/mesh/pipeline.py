"""Schedules of a pipeline: in which order each stage computes which microbatch, and the tasks that follow from it.

GPipe: Huang et al. (https://arxiv.org/abs/1811.06965). 1F1B and interleaved: Narayanan et al.
(https://arxiv.org/abs/2104.04473), section 2.2.
"""

from collections.abc import Sequence
from typing import NamedTuple

from collectives.errors import InputError
from simcomm.timeline import Program


class StageRun(NamedTuple):
    """One microbatch through one of the stages of a device."""

    is_backward: bool
    chunk: int  # which of the device's stages
    microbatch: int


def order_of(schedule: str, device: int, devices: int, microbatches: int, virtual: int = 1) -> list[StageRun]:
    """Return what a device of a pipeline does, in order. Raise InputError for microbatches that do not interleave.

    >>> ["FB"[work.is_backward] + str(work.microbatch) for work in order_of("1f1b", 1, 2, 3)]
    ['F0', 'B0', 'F1', 'B1', 'F2', 'B2']
    """
    if schedule == "interleaved":
        if microbatches % devices:
            raise InputError(f"interleaved: {microbatches} microbatches are not divided by the {devices} stages")
        forward = [_interleaved(number, devices, virtual) for number in range(microbatches * virtual)]
        backward = [StageRun(True, virtual - 1 - one.chunk, one.microbatch) for one in forward]
        ahead = 2 * (devices - device - 1) + (virtual - 1) * devices
    else:
        forward = [StageRun(False, 0, number) for number in range(microbatches)]
        backward = [StageRun(True, 0, number) for number in range(microbatches)]
        ahead = devices - device - 1 if schedule == "1f1b" else microbatches
    ahead = min(ahead, len(forward))
    found = forward[:ahead]
    for number, one in enumerate(forward[ahead:]):
        found += [one, backward[number]]
    return found + backward[len(forward) - ahead :]


def _interleaved(number: int, devices: int, virtual: int) -> StageRun:
    group, place = divmod(number, devices * virtual)
    return StageRun(False, place // devices, group * devices + place % devices)


class StageTimes(NamedTuple):
    """Seconds of a stage for a microbatch, and of the message behind it."""

    forward: float
    backward: float
    send: float


def pipeline_program(schedule: str, stages: Sequence[StageTimes], devices: int, microbatches: int) -> Program:
    """Return the program of all devices; stage k is on device k modulo ``devices``.

    A message has its sender's stream in that direction to itself, and a stage waits for it.
    """
    program, done = Program(), dict[tuple[bool, int, int], int]()  # is_backward, stage, microbatch: what to wait for
    virtual = len(stages) // devices
    orders = [order_of(schedule, device, devices, microbatches, virtual) for device in range(devices)]
    position = [0] * devices
    while any(position[device] < len(orders[device]) for device in range(devices)):
        before = sum(position)
        for device in range(devices):
            while position[device] < len(orders[device]):
                work = orders[device][position[device]]
                stage = work.chunk * devices + device
                needs = _needed(work, stage, len(stages))
                if needs is not None and needs not in done:
                    break
                _add(program, done, stages, work, stage, device)
                position[device] += 1
        assert sum(position) > before, f"{schedule} waits for itself"
    return program


def _needed(work: StageRun, stage: int, stages: int) -> tuple[bool, int, int] | None:
    """Return what the work waits for: the stage before, of backward the one behind, of its last stage the forward."""
    if not work.is_backward:
        return (False, stage - 1, work.microbatch) if stage else None
    return (True, stage + 1, work.microbatch) if stage + 1 < stages else (False, stage, work.microbatch)


def _add(
    program: Program,
    done: dict[tuple[bool, int, int], int],
    stages: Sequence[StageTimes],
    work: StageRun,
    stage: int,
    device: int,
) -> None:
    """Add the work, and the message to the stage that waits for it."""
    needs, name = _needed(work, stage, len(stages)), "backward" if work.is_backward else "forward"
    seconds = stages[stage].backward if work.is_backward else stages[stage].forward
    after = () if needs is None else (done[needs],)
    number = program.add(f"{name} {stage} {work.microbatch}", (device, "compute"), seconds, *after)
    behind = stage - 1 if work.is_backward else stage  # the message crosses from this stage to the next, or back
    if 0 <= behind < len(stages) - 1 and stages[behind].send > 0:
        to = f"send {name} {stage} {work.microbatch}"
        number = program.add(to, (device, f"send {name}"), stages[behind].send, number)
    done[work.is_backward, stage, work.microbatch] = number
