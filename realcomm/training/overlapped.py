"""Gradients that travel in buckets while backward goes on, each by an all_reduce of ours.

A bucket is a piece of the flat buffer, which has the gradients in the order in which backward makes them, so nothing is
copied. All ranks start the buckets in the same order, whichever of them is full first, and one thread carries them out.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from collectives.declaration import Algorithm
from collectives.training.buckets import Gradient, fill_buckets
from collectives.training.workload import Buckets
from realcomm.execution.executor import execute
from realcomm.execution.own_collective import Runner
from realcomm.functions.work import Handle, start_work
from realcomm.training.gradient_sync import GradientSync, lay_out, make_bucket_runner, named_parameters
from realcomm.training.stopwatch import Stopwatch


@dataclass
class Bucket:
    """Parameters whose gradients travel together, and how many of them backward has not made yet in this step."""

    piece: torch.Tensor  # of the flat buffer
    runner: Runner
    parameters: list[nn.Parameter]
    missing: set[nn.Parameter] = field(default_factory=set)


class DuringBackward(GradientSync):
    """Averages each bucket of gradients by an all_reduce of ours that starts when the bucket is full.

    The first step fills the buckets in the order of the parameters from the last to the first; from then on it is the
    order in which rank 0's first backward made them, as DistributedDataParallel has it.
    """

    def __init__(self, algorithm: Algorithm, buckets: Buckets, model: nn.Module, gradients: torch.Tensor) -> None:
        """Make the model's gradients views of pieces of ``gradients``. All ranks call this together."""
        self._algorithm, self._mb, self._gradients = algorithm, buckets.mb, gradients
        self._watch: Stopwatch | None = None
        self._named = named_parameters(model)
        self._made: list[nn.Parameter] = []
        self._under_way: list[Handle] = []
        self._is_active, self._is_ordered = True, False
        self.order = list(range(len(self._named)))[::-1]
        self._buckets, self._of = self._fill()
        for _, parameter in self._named:
            parameter.register_post_accumulate_grad_hook(self._note)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self._is_active = False
        yield
        self._is_active = True

    def accumulating(self) -> AbstractContextManager[object]:
        """Return a context in which backward starts no bucket."""
        return self._waiting()

    def begin(self) -> None:
        """Begin a step: no gradient is made yet."""
        self._made.clear()
        self._under_way.clear()
        for bucket in self._buckets:
            bucket.missing = set(bucket.parameters)

    def finish(self, gradients: torch.Tensor) -> None:
        """Start what waits for gradients that this backward did not make, and return when every mean is there."""
        for bucket in self._buckets[len(self._under_way) :]:
            self._start(bucket)
        for work in self._under_way:
            if work is not None:
                work.wait()
        if not self._is_ordered:
            self._reorder()

    def record_buckets(self, watch: Stopwatch) -> None:
        """Have each bucket be a span."""
        self._watch = watch

    @property
    def unused(self) -> list[str]:
        """The names of the parameters whose gradients the latest backward did not make."""
        made = set(self._made)
        return [name for name, parameter in self._named if parameter not in made]

    def state_dict(self) -> dict[str, Any]:
        """Return the order of the gradients, by which buckets are filled; none before the first step."""
        return {"order": self.order} if self._is_ordered else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the order of a state."""
        if "order" in state:
            self.order, self._is_ordered = list(state["order"]), True
            self._buckets, self._of = self._fill()

    def _note(self, parameter: nn.Parameter) -> None:
        """Note that a gradient is there; start the buckets that are full and whose turn it is."""
        if not self._is_active:
            return
        self._made.append(parameter)
        self._of[parameter].missing.discard(parameter)
        while len(self._under_way) < len(self._buckets) and not self._buckets[len(self._under_way)].missing:
            self._start(self._buckets[len(self._under_way)])

    def _start(self, bucket: Bucket) -> None:
        """Start the all_reduce of the next bucket."""
        end = self._watch.begin(f"bucket {len(self._under_way)}") if self._watch is not None else None

        def run() -> None:
            bucket.runner.run(bucket.piece)
            if end is not None:
                end()

        group = dist.group.WORLD
        assert group is not None
        self._under_way.append(start_work(run, group, bucket.piece.device, [bucket.piece], async_op=True))

    def _reorder(self) -> None:
        """Take rank 0's order of the gradients on all ranks; the next step fills the buckets by it."""
        numbers = {parameter: number for number, (_, parameter) in enumerate(self._named)}
        made = list(dict.fromkeys(numbers[parameter] for parameter in self._made))
        made += [number for number in self.order if number not in set(made)]
        order = torch.tensor(made, dtype=torch.int64, device=self._gradients.device)
        execute("broadcast/naive", order)
        self._is_ordered = True
        if order.tolist() != self.order:
            self.order = order.tolist()
            means = [parameter.grad.clone() for _, parameter in self._named if parameter.grad is not None]
            self._buckets, self._of = self._fill()
            for (_, parameter), mean in zip(self._named, means, strict=True):
                assert parameter.grad is not None
                parameter.grad.copy_(mean)

    def _fill(self) -> tuple[list[Bucket], dict[nn.Parameter, Bucket]]:
        """Lay the gradients out in their order; return the buckets, and the bucket of each parameter."""
        parameters = [self._named[number][1] for number in self.order]
        lay_out(parameters, self._gradients)
        filled = fill_buckets([Gradient(each.grad.nbytes, 0.0) for each in parameters if each.grad is not None],
                              int(self._mb * 2**20))  # fmt: skip
        ends = list(accumulate(bucket.nbytes // self._gradients.itemsize for bucket in filled))
        buckets = [self._bucket(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
        at, of = 0, dict[nn.Parameter, Bucket]()
        for parameter in parameters:
            bucket = next(one for one, end in zip(buckets, ends, strict=True) if at < end)
            bucket.parameters.append(parameter)
            of[parameter] = bucket
            at += parameter.numel()
        return buckets, of

    def _bucket(self, begin: int, end: int) -> Bucket:
        piece = self._gradients[begin:end]
        return Bucket(piece, make_bucket_runner(self._algorithm, piece), [])
