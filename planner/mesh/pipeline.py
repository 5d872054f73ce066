"""The tasks of a pipeline's schedule, as a program of streams."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.pipeline import StageRun, order_of
from simcomm.timeline import Program


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
