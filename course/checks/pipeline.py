"""Checks of lesson 10: GPipe and 1F1B."""

import math
import time
from collections.abc import Callable
from types import ModuleType

import torch
import torch.distributed as dist

from course.checks.exercise import ALPHA, BETA, Exercise, Shown, WrongAnswerError, expect_close, expect_equal

FEW = 2  # micro batches, less than there are stages
MICRO_BATCHES, FORWARD, BACKWARD = 6, 10e-3, 20e-3  # seconds


class Stage:
    """Doubles activations in forward, triples gradients in backward, and takes virtual time for it."""

    def __init__(self, most_kept: int, in_order: bool) -> None:
        self.most_kept, self.in_order = most_kept, in_order
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.is_first, self.is_last = self.rank == 0, self.rank == self.world_size - 1
        self.kept: dict[int, torch.Tensor | None] = {}
        self.done: list[int] = []

    def empty(self) -> torch.Tensor:
        return torch.full((4,), math.nan)  # until something is received into it

    def forward(self, micro_batch: int, inputs: torch.Tensor | None) -> torch.Tensor:
        time.sleep(FORWARD)
        wanted = torch.full((4,), (micro_batch + 1.0) * 2**self.rank)
        if not self.is_first:
            if inputs is None:
                raise WrongAnswerError(
                    f"rank {self.rank}: forward of micro batch {micro_batch} was called without inputs"
                )
            self.expect(inputs, wanted, f"the inputs of micro batch {micro_batch}")
        self.kept[micro_batch] = inputs
        if len(self.kept) > self.most_kept:
            raise WrongAnswerError(
                f"rank {self.rank} keeps {len(self.kept)} micro batches at once; 1F1B needs {self.most_kept}"
            )
        return 2 * wanted

    def backward(self, micro_batch: int, gradient: torch.Tensor | None) -> torch.Tensor:
        time.sleep(BACKWARD)
        wanted = torch.full((4,), (micro_batch + 1.0) * 3 ** (self.world_size - 1 - self.rank))
        if micro_batch not in self.kept:
            raise WrongAnswerError(
                f"rank {self.rank}: backward of micro batch {micro_batch}, of which there is no forward"
            )
        if not self.is_last:
            if gradient is None:
                raise WrongAnswerError(
                    f"rank {self.rank}: backward of micro batch {micro_batch} was called without gradient"
                )
            self.expect(gradient, wanted, f"the gradient of micro batch {micro_batch}")
        inputs = self.kept.pop(micro_batch)
        if inputs is not None and inputs[0] != (micro_batch + 1.0) * 2**self.rank:
            raise WrongAnswerError(
                f"rank {self.rank}: the inputs of micro batch {micro_batch} were changed before its backward: receive "
                "each into a tensor of its own",
                inputs,
                [0],
            )
        self.done.append(micro_batch)
        if self.in_order and self.done != sorted(self.done):
            raise WrongAnswerError(
                f"rank {self.rank}: backwards ran in the order {self.done}, not in the order of the micro batches"
            )
        return 3 * wanted

    def expect(self, got: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
        if got.isnan().all():
            raise WrongAnswerError(f"rank {self.rank}: {what} are not there: nothing was received into the tensor")
        expect_equal(got, wanted, f"rank {self.rank}: {what}")


def run(schedule: Callable[[Stage, int], None], micro_batches: int, stage: Stage) -> None:
    schedule(stage, micro_batches)
    if sorted(stage.done) != list(range(micro_batches)):
        raise WrongAnswerError(
            f"rank {stage.rank}: backward was run for micro batches {stage.done} of {micro_batches}, not for each once"
        )


def gpipe(lesson: ModuleType) -> None:
    run(lesson.gpipe, MICRO_BATCHES, Stage(MICRO_BATCHES, in_order=True))


def one_f_one_b(lesson: ModuleType) -> None:
    stages_left = dist.get_world_size() - dist.get_rank()
    for micro_batches in (FEW, MICRO_BATCHES):
        run(lesson.one_f_one_b, micro_batches, Stage(min(stages_left, micro_batches), in_order=False))


def bubble(lesson: ModuleType) -> None:
    for stages, micro_batches in ((4, 8), (8, 64), (1, 4)):
        steps = micro_batches + stages - 1
        mistakes = {
            "idle time over busy time: the share is of all, m + p - 1": (stages - 1) / micro_batches,
            "one stage too many: a stage is idle for p - 1": stages / (micro_batches + stages),
            "the share in which a stage is busy": micro_batches / steps,
        }
        what = f"bubble({stages} stages, {micro_batches} micro batches)"
        expect_close(lesson.bubble(stages, micro_batches), (stages - 1) / steps, what, mistakes=mistakes)


def seconds(p: int, micro_batches: int = MICRO_BATCHES) -> float:
    steps = micro_batches + p - 1
    return 1.01 * steps * (FORWARD + BACKWARD) + 4 * (steps + p) * (ALPHA + 16 * BETA)


HINT = "a stage that waits for its neighbour to take a message cannot compute: see the waits in `--show`"
EXERCISES = [
    Exercise(
        "gpipe",
        gpipe,
        "'Your turn': what forward and backward of a stage take and return; `ringlab learn 10 --show`",
        (1, 2, 4),
        most_seconds=seconds,
        hint=HINT,
    ),
    Exercise(
        "one_f_one_b",
        one_f_one_b,
        "the docstring's order; lesson 2 on sending both ways; `ringlab learn 10 --show`",
        (1, 2, 4),
        most_seconds=lambda p: seconds(p) + seconds(p, FEW),
        hint=HINT,
    ),
    Exercise(
        "bubble",
        bubble,
        "the picture of `ringlab learn 10 --show`: the steps in which the first stage has nothing to do",
    ),
]
PREDICTED = {
    "seconds of a step": 11 * 0.03,
    "bubble": 3 / 11,
    "kept by rank 0, GPipe": 8,
    "kept by rank 0, 1F1B": 4,
}
SHOWN = Shown(4)
