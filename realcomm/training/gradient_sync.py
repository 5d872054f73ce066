"""Average the gradients of all ranks with torch's or Ringlab's collectives, after backward or in buckets during it.

Ringlab's buckets are slices of a flat buffer. The buffer has the gradients in the order in which backward produces
them, so nothing is copied. All ranks start the buckets in the same order, even if a later bucket is full first. The
buckets are averaged one after another.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket  # its public name has no type
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from collectives.call import CollectiveCall
from collectives.declaration import Algorithm
from collectives.training.gradients import FIRST_BYTES, Gradient, fill_buckets
from collectives.training.workload import Buckets
from realcomm.execution.collective_sequence import Collective
from realcomm.execution.executor import execute
from realcomm.execution.own_collective import Runner, make_runner
from realcomm.functions.work import Handle, start_work
from realcomm.launching.group import group_or_default
from realcomm.training.stopwatch import Stopwatch

Average = Callable[[torch.Tensor], None]  # replaces a flat buffer by its mean over all ranks
NamedParameters = list[tuple[str, nn.Parameter]]


class GradientSync:
    """Averages the gradients over all ranks. This base class leaves them unchanged."""

    def begin(self) -> None:
        """Prepare for a training step. Call this before the step's first backward."""

    def accumulating(self) -> AbstractContextManager[object]:
        """Return a context in which gradients are not averaged, for each micro-batch except the last."""
        return nullcontext()

    def finish(self, gradients: torch.Tensor) -> None:
        """Wait until the flat ``gradients`` contain the mean over all ranks. Call this after a step's last backward."""

    def record_buckets(self, watch: Stopwatch) -> None:
        """On CPUs, record a span for each bucket, from when the bucket is full until its mean is ready."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs to add gradients in the same order."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""


class AfterBackward(GradientSync):
    """Averages all gradients at once, after backward."""

    def __init__(self, average: Average) -> None:
        self._average = average

    def finish(self, gradients: torch.Tensor) -> None:
        self._average(gradients)


class LocalSteps(GradientSync):
    """Averages the weights every few steps (local SGD) and leaves gradients unchanged."""

    def __init__(self, average: AfterBackward, model: nn.Module) -> None:
        self._average, self._parameters = average, [parameter for _, parameter in named_parameters(model)]

    def average_weights(self, buffer: torch.Tensor) -> None:
        """Replace the weights by their mean over all ranks. ``buffer``, of the same length, is overwritten."""
        pieces = buffer.split([each.numel() for each in self._parameters])
        with torch.no_grad():
            torch.cat([each.flatten() for each in self._parameters], out=buffer)
            self._average.finish(buffer)
            for parameter, piece in zip(self._parameters, pieces, strict=True):
                parameter.copy_(piece.view_as(parameter))


class DdpSync(GradientSync):
    """Averages gradients with DistributedDataParallel during backward, using Ringlab's ``algorithm`` if it is set.

    Call the attribute ``model`` instead of the original model. A bucket size other than the default also applies to the
    first bucket. By default, torch starts with a bucket of 1 MiB.
    """

    def __init__(self, model: nn.Module, bucket_mb: float, algorithm: Algorithm | None = None) -> None:
        cap = None if bucket_mb == Buckets.mb else bucket_mb
        self.model = DistributedDataParallel(model, bucket_cap_mb=cap)
        self._algorithm = algorithm
        self._watch: Stopwatch | None = None
        self._ours: dict[int, tuple[torch.Tensor, Runner]] = {}
        if algorithm is not None:
            self.model.register_comm_hook(None, self._reduce_bucket)

    def accumulating(self) -> AbstractContextManager[object]:
        return self.model.no_sync()

    def record_buckets(self, watch: Stopwatch) -> None:
        self._watch = watch
        if self._algorithm is None:
            self.model.register_comm_hook(None, self._reduce_bucket)

    def _reduce_bucket(self, state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Start the all_reduce of a bucket; return the future of its mean."""
        end_of = self._watch.begin(f"bucket {bucket.index()}") if self._watch is not None else None
        reduced = self._start_runner(bucket) if self._algorithm is not None else allreduce_hook(None, bucket)  # type: ignore[arg-type]
        if end_of is None:
            return reduced

        def end(done: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            end_of()
            return done.value()

        return reduced.then(end)

    def _start_runner(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer, (known, runner) = bucket.buffer(), self._ours.get(bucket.index(), (None, None))
        if known is None or runner is None or (known.data_ptr(), len(known)) != (buffer.data_ptr(), len(buffer)):
            assert self._algorithm is not None
            known, runner = buffer, make_bucket_runner(self._algorithm, buffer)  # torch rebuilds its buckets once
            self._ours[bucket.index()] = known, runner
        tensor, chosen = known, runner

        def run(collective: Collective) -> None:
            chosen.run(tensor, collective=collective)

        name = runner.call.algorithm.full_name
        work = start_work(run, name, group_or_default(), tensor.device, [tensor], async_op=True)
        assert work is not None
        return work.get_future().then(lambda done: done.value()[0])


def make_bucket_runner(algorithm: Algorithm, piece: torch.Tensor) -> Runner:
    """Return the runner that averages a bucket. All ranks must call this together."""
    call = CollectiveCall(algorithm, len(piece), op="mean")
    return make_runner(call, dist.get_rank(), dist.get_world_size(), piece.device)


def make_sync(algorithm: Algorithm, rank: int, world_size: int, gradients: torch.Tensor) -> AfterBackward:
    """Return a GradientSync that averages ``gradients`` over all ranks with one all_reduce after backward."""
    call = CollectiveCall(algorithm, gradients.numel(), op="mean")
    return AfterBackward(make_runner(call, rank, world_size, gradients.device).run)


def named_parameters(model: nn.Module) -> NamedParameters:
    """Return the trained parameters with their names, in model order."""
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def lay_out(parameters: list[nn.Parameter], buffer: torch.Tensor) -> None:
    """Make each parameter's gradient a view of the flat buffer, with the parameter's memory layout."""
    for parameter, piece in zip(parameters, buffer.split([each.numel() for each in parameters]), strict=True):
        parameter.grad = piece.as_strided(parameter.shape, torch.empty_like(parameter, device="meta").stride())


no_sync = GradientSync()  # for a rank that trains alone


@dataclass
class GradientBucket:
    """A group of parameters whose gradients are averaged together.

    ``missing`` are the parameters that have no gradient in this step yet.
    """

    piece: torch.Tensor  # a slice of the flat buffer
    runner: Runner
    parameters: list[nn.Parameter]
    missing: set[nn.Parameter] = field(default_factory=set)


class DuringBackward(GradientSync):
    """Averages each bucket of gradients with Ringlab's all_reduce as soon as the bucket is full.

    The first step fills buckets from the last parameter to the first. Later steps use the order of rank 0's first
    backward, as DistributedDataParallel does.
    """

    def __init__(self, algorithm: Algorithm, buckets: Buckets, model: nn.Module, gradients: torch.Tensor) -> None:
        """Make the model's gradients views of ``gradients``. All ranks must call this together."""
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
        """Return a context for micro-batches, in which backward does not start any bucket."""
        return self._waiting()

    def begin(self) -> None:
        self._made.clear()
        self._under_way.clear()
        for bucket in self._buckets:
            bucket.missing = set(bucket.parameters)

    def finish(self, gradients: torch.Tensor) -> None:
        """Start the buckets that are still incomplete after backward, and wait until all means are ready."""
        for bucket in self._buckets[len(self._under_way) :]:
            self._start(bucket)
        for work in self._under_way:
            if work is not None:
                work.wait()
        if not self._is_ordered:
            self._reorder()

    def record_buckets(self, watch: Stopwatch) -> None:
        self._watch = watch

    def state_dict(self) -> dict[str, Any]:
        """Return the order of the gradients, or an empty dict before the end of the first step."""
        return {"order": self.order} if self._is_ordered else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "order" in state:
            self.order, self._is_ordered = list(state["order"]), True
            self._buckets, self._of = self._fill()

    def _note(self, parameter: nn.Parameter) -> None:
        """Record that a parameter's gradient is ready. Then start buckets in order until one is not full."""
        if not self._is_active:
            return
        self._made.append(parameter)
        self._of[parameter].missing.discard(parameter)
        while len(self._under_way) < len(self._buckets) and not self._buckets[len(self._under_way)].missing:
            self._start(self._buckets[len(self._under_way)])

    def _start(self, bucket: GradientBucket) -> None:
        end = self._watch.begin(f"bucket {len(self._under_way)}") if self._watch is not None else None

        def run(collective: Collective) -> None:
            bucket.runner.run(bucket.piece, collective=collective)
            if end is not None:
                end()

        group = group_or_default()
        name, device = self._algorithm.full_name, bucket.piece.device
        self._under_way.append(start_work(run, name, group, device, [bucket.piece], async_op=True))

    def _reorder(self) -> None:
        """Adopt rank 0's order of gradients on all ranks, for the buckets of later steps."""
        numbers = {parameter: number for number, (_, parameter) in enumerate(self._named)}
        numbers_made = list(dict.fromkeys(numbers[parameter] for parameter in self._made))
        numbers_made += [number for number in self.order if number not in set(numbers_made)]
        order = torch.tensor(numbers_made, dtype=torch.int64, device=self._gradients.device)
        execute("broadcast/naive", order)
        self._is_ordered = True
        if order.tolist() != self.order:
            self.order = order.tolist()
            means = [parameter.grad.clone() for _, parameter in self._named if parameter.grad is not None]
            self._buckets, self._of = self._fill()
            for (_, parameter), mean in zip(self._named, means, strict=True):
                assert parameter.grad is not None
                parameter.grad.copy_(mean)

    def _fill(self) -> tuple[list[GradientBucket], dict[nn.Parameter, GradientBucket]]:
        parameters = [self._named[number][1] for number in self.order]
        lay_out(parameters, self._gradients)
        filled = fill_buckets([Gradient(each.grad.nbytes, 0.0) for each in parameters if each.grad is not None],
                              int(self._mb * 2**20), FIRST_BYTES)  # fmt: skip
        ends = list(accumulate(bucket.nbytes // self._gradients.itemsize for bucket in filled))
        buckets = [self._bucket(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
        offset, by_parameter = 0, dict[nn.Parameter, GradientBucket]()
        for parameter in parameters:
            bucket = next(bucket_at for bucket_at, end in zip(buckets, ends, strict=True) if offset < end)
            bucket.parameters.append(parameter)
            by_parameter[parameter] = bucket
            offset += parameter.numel()
        return buckets, by_parameter

    def _bucket(self, begin: int, end: int) -> GradientBucket:
        piece = self._gradients[begin:end]
        return GradientBucket(piece, make_bucket_runner(self._algorithm, piece), [])
