"""Checks of lesson 10: GPipe and 1F1B."""

import math
import time
from collections.abc import Callable
from types import ModuleType

import torch
import torch.distributed as dist

from course.checks.exercise import (
    ALPHA,
    BETA,
    POINT_TO_POINT,
    Exercise,
    Predicted,
    Shown,
    StageSpan,
    WrongAnswerError,
    expect_close,
    expect_equal,
    measuring,
)

FEW = 2  # fewer micro batches than stages
MICRO_BATCHES, FORWARD, BACKWARD = 6, 10e-3, 20e-3  # seconds


class Stage:
    """A fake stage: forward doubles activations, backward triples gradients, and both take virtual time."""

    def __init__(self, most_kept: int, micro_batches: int, is_gpipe: bool, dtype: torch.dtype) -> None:
        self.most_kept, self.micro_batches, self.is_gpipe, self.dtype = most_kept, micro_batches, is_gpipe, dtype
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.is_first, self.is_last = self.rank == 0, self.rank == self.world_size - 1
        self.kept: dict[int, torch.Tensor | None] = {}
        self.begun: list[int] = []
        self.done: list[int] = []

    def empty(self) -> torch.Tensor:
        return torch.full((4,), math.nan, dtype=self.dtype)  # nan shows that nothing was received

    def forward(self, micro_batch: int, inputs: torch.Tensor | None) -> torch.Tensor:
        time.sleep(FORWARD)
        wanted = self.full((micro_batch + 1.0) * 2**self.rank)
        if micro_batch in self.begun or micro_batch not in range(self.micro_batches):
            raise WrongAnswerError(
                f"rank {self.rank}: forward({micro_batch}) was called after {self.begun}; call forward once for each "
                f"micro batch from 0 to {self.micro_batches - 1}"
            )
        self.begun.append(micro_batch)
        if not self.is_first:
            if inputs is None:
                raise WrongAnswerError(f"rank {self.rank}: forward of micro batch {micro_batch} needs inputs, not None")
            self.expect(inputs, wanted, f"the inputs of micro batch {micro_batch}")
        self.kept[micro_batch] = inputs
        if len(self.kept) > self.most_kept:
            raise WrongAnswerError(
                f"rank {self.rank} keeps {len(self.kept)} micro batches at once; 1F1B keeps at most {self.most_kept}"
            )
        return 2 * wanted

    def backward(self, micro_batch: int, gradient: torch.Tensor | None) -> torch.Tensor:
        time.sleep(BACKWARD)
        wanted = self.full((micro_batch + 1.0) * 3 ** (self.world_size - 1 - self.rank))
        if micro_batch not in self.kept:
            raise WrongAnswerError(f"rank {self.rank}: backward of micro batch {micro_batch} before its forward")
        if self.is_gpipe and len(self.begun) < self.micro_batches:
            raise WrongAnswerError(
                f"rank {self.rank}: backward of micro batch {micro_batch} after {len(self.begun)} of "
                f"{self.micro_batches} forwards; GPipe runs all forwards first"
            )
        if not self.is_last:
            if gradient is None:
                raise WrongAnswerError(
                    f"rank {self.rank}: backward of micro batch {micro_batch} needs a gradient, not None"
                )
            self.expect(gradient, wanted, f"the gradient of micro batch {micro_batch}")
        inputs = self.kept.pop(micro_batch)
        if inputs is not None and inputs[0] != (micro_batch + 1.0) * 2**self.rank:
            raise WrongAnswerError(
                f"rank {self.rank}: the inputs of micro batch {micro_batch} have changed before its backward; receive "
                "every micro batch into a separate tensor",
                inputs,
                [0],
            )
        self.done.append(micro_batch)
        if self.is_gpipe and self.done != sorted(self.done):
            raise WrongAnswerError(
                f"rank {self.rank}: backwards ran in the order {self.done}, not in the order of the micro batches"
            )
        return 3 * wanted

    def full(self, value: float) -> torch.Tensor:
        return torch.full((4,), value, dtype=self.dtype)

    def expect(self, got: torch.Tensor, wanted: torch.Tensor, name: str) -> None:
        if got.isnan().all():
            raise WrongAnswerError(f"rank {self.rank}: nothing was received into the tensor for {name}")
        expect_equal(got, wanted, f"rank {self.rank}: {name}")


def run(lesson: ModuleType, schedule: Callable[[Stage, int], None], is_gpipe: bool) -> None:
    """Check a schedule with three numbers of micro batches. Only the run with ``MICRO_BATCHES`` is measured."""
    stages_left = dist.get_world_size() - dist.get_rank()
    cases = (MICRO_BATCHES, torch.float32), (1, torch.float64), (FEW, torch.float32)
    for micro_batches, dtype in cases:
        most_kept = micro_batches if is_gpipe else min(stages_left, micro_batches)
        stage = Stage(most_kept, micro_batches, is_gpipe, dtype)
        with measuring(lesson, micro_batches == MICRO_BATCHES):
            schedule(stage, micro_batches)
        if sorted(stage.done) != list(range(micro_batches)):
            raise WrongAnswerError(
                f"rank {stage.rank}: backward must run once for each of {micro_batches} micro batches, but ran for "
                f"{stage.done}"
            )


def seconds(p: int) -> float:
    steps = MICRO_BATCHES + p - 1
    return 1.01 * steps * (FORWARD + BACKWARD) + 4 * (steps + p) * (ALPHA + 16 * BETA)


def neighbors(rank: int, p: int) -> set[int]:
    return {rank - 1, rank + 1} & set(range(p))


def schedule(read: str) -> Exercise:
    return Exercise(
        read,
        (1, 2, 3, 5),
        calls=POINT_TO_POINT,
        receivers=neighbors,
        most_seconds=seconds,
        hint="a stage that waits until its neighbor takes a message cannot compute: see the waits in `--show`",
    )


@schedule("'Your turn': what forward and backward of a stage take and return; `ringlab learn 10 --show`")
def gpipe(lesson: ModuleType) -> None:
    run(lesson, lesson.gpipe, is_gpipe=True)


@schedule("the order in the docstring; lesson 2 on sending both ways; `ringlab learn 10 --show`")
def one_f_one_b(lesson: ModuleType) -> None:
    run(lesson, lesson.one_f_one_b, is_gpipe=False)


@Exercise("the player of `ringlab learn 10 --show`: the time in which the first stage does not compute")
def bubble(lesson: ModuleType) -> None:
    for stages, micro_batches in ((4, 8), (8, 64), (1, 4)):
        steps = micro_batches + stages - 1
        mistakes = {
            "idle time over busy time: the share is of the whole step, m + p - 1": (stages - 1) / micro_batches,
            "one stage too many: a stage is idle for p - 1": stages / (micro_batches + stages),
            "the share in which a stage is busy": micro_batches / steps,
        }
        call_text = f"bubble({stages} stages, {micro_batches} micro batches)"
        expect_close(lesson.bubble(stages, micro_batches), (stages - 1) / steps, call_text, mistakes=mistakes)


def predicted() -> dict[str, Predicted]:
    return {
        "seconds of a step": Predicted(
            11 * 0.03, "The last stage starts 3 forwards late and the first one ends 3 backwards late: (8 + 3) * 30 ms."
        ),
        "bubble": Predicted(3 / 11, "Each stage computes for 8 of the 11 slots of 30 ms and waits in the other 3."),
        "kept by rank 0, GPipe": Predicted(8, "GPipe runs all 8 forwards before the first backward frees anything."),
        "kept by rank 0, 1F1B": Predicted(
            4, "The first gradient returns to rank 0 after its 4th forward; from then on each backward frees one."
        ),
    }


def record_spans(lesson: ModuleType, spans: list[StageSpan]) -> None:
    """Make the file's ``Stage`` append a StageSpan to ``spans`` for each forward and backward."""

    def recorded(name: str) -> Callable[..., object]:
        function = getattr(lesson.Stage, name)

        def run(stage: object, micro_batch: int, *arguments: object) -> object:
            begin = time.perf_counter()
            result: object = function(stage, micro_batch, *arguments)
            spans.append((name, micro_batch, begin, time.perf_counter()))
            return result

        return run

    for name in ("forward", "backward"):
        setattr(lesson.Stage, name, recorded(name))


SHOWN = Shown(4, record=record_spans)
