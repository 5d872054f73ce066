"""Time the parts of a training step on a rank: compute, collectives, and a whole step without communication."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # its collectives return at once
from torch.nn.parallel import DistributedDataParallel

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import Measured
from realcomm.execution.device_clock import seconds_of
from realcomm.execution.own_collective import all_gather_single, reduce_scatter_single
from realcomm.launching.group import own_device
from realcomm.launching.status import set_status
from realcomm.profiling.measured import measure
from realcomm.profiling.meta import profile_on_meta
from realcomm.strategies.blocks import named_blocks
from realcomm.strategies.plan import StrategyPlan, batches_of, build
from realcomm.strategies.spread import Spread, loss_of, mesh_of, move
from realcomm.training.replica import optimizer_of
from realcomm.training.running import EndlessBatches

WARM_UP, MEASURED = 2, 7
REPEATS = 4  # consecutive calls that are timed together
FLOAT = 4  # bytes per element


class TimedCollective(NamedTuple):
    """A collective of ``nbytes`` bytes to time in groups of ``size`` ranks, whose world ranks are ``stride`` apart."""

    collective: str
    nbytes: int
    size: int
    stride: int = 1


class RankTimes(NamedTuple):
    """One rank's times in seconds: its layers' compute, the whole model's optimizer, and loading a batch.

    ``collectives_s`` has one time for each timed collective. ``silent_s`` is the time of a step without communication.
    Both are measured between training steps.
    """

    computing: Measured
    optimizer_s: float
    loading_s: float = 0.0
    collectives_s: Sequence[float] = ()
    silent_s: float = 0.0


def time_pieces(plan: StrategyPlan) -> RankTimes:
    """Time a model's layers, its optimizer, and the loading of a batch, on all ranks at once.

    Raise InputError for a model that does not fit on one device.
    """
    try:
        return _time_pieces(plan)
    except (InputError, torch.OutOfMemoryError) as error:
        if isinstance(error, InputError) and not isinstance(error.__cause__, torch.OutOfMemoryError):
            raise
        raise InputError(
            f"model {quote(plan.model)} does not fit on one device, so its layers cannot be timed for a prediction; "
            "train it with `ringlab run` instead"
        ) from error


def _time_pieces(plan: StrategyPlan) -> RankTimes:
    set_status("timing the parts of a step")
    source, samples = plan.source, plan.samples_at_once
    profile, device = profile_on_meta(source), own_device()
    dist.barrier()
    threads = torch.get_num_threads() if device.type == "cpu" else None
    computing = measure(source, profile, samples, device=str(device), threads=threads)
    model = source.build().to(device)
    kind, options = optimizer_of(plan.recipe)
    optimizer = kind(model.parameters(), **options)
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    return RankTimes(computing, _median_seconds(optimizer.step), _time_loading(plan))


def _time_loading(plan: StrategyPlan) -> float:
    """Return the median seconds that a replica waits for the next batch when it does nothing else."""
    if plan.images is None:
        return 0.0
    batches = EndlessBatches(plan.images, 0, plan.parallelism.data)
    batches.take_prefetched()
    return _median_seconds(lambda: next(batches))


class Turns:
    """Times collectives and a step without communication repeatedly between training steps.

    One measurement would not be enough, because a machine's speed drifts. All ranks must call ``take`` together.
    """

    def __init__(self, rank: int, world_size: int, plan: StrategyPlan, collectives: Sequence[TimedCollective]) -> None:
        groups = {
            shape: own_group(rank, world_size, *shape) for shape in dict.fromkeys(timed[2:] for timed in collectives)
        }
        calls = (_call(rank, timed, groups[timed[2:]]) for timed in collectives)
        self._calls = [silent_step(plan, rank, world_size), *map(_repeated, calls)]
        self._seconds = [list[float]() for _ in self._calls]
        for _ in range(WARM_UP):
            self.take()
        self._seconds = [list[float]() for _ in self._calls]

    def take(self) -> None:
        """Time each collective and the step without communication once."""
        set_status("timing the parts of a step")
        for call, seconds in zip(self._calls, self._seconds, strict=True):
            dist.barrier()
            seconds.append(seconds_of(call, own_device()))

    def complete(self, times: RankTimes) -> RankTimes:
        """Return ``times`` with the median times over all calls of ``take``."""
        silent, *collectives = map(median, self._seconds)
        return times._replace(silent_s=silent, collectives_s=[each / REPEATS for each in collectives])


def _repeated(call: Callable[[], object]) -> Callable[[], object]:

    def calls() -> None:
        for _ in range(REPEATS):
            call()

    return calls


def silent_step(plan: StrategyPlan, rank: int, world_size: int) -> Callable[[], object]:
    """Return a function that runs a strategy's training step without communication.

    The step does all compute and copies of this rank. Torch's parallelism classes run on a device mesh with the "fake"
    backend, whose collectives return at once. A pipeline rank computes its stages on activations that were computed in
    advance.
    """
    plan = plan._replace(images=None, steps=1)
    model = build(plan)
    mesh = mesh_of(plan.parallelism, lambda size, stride: own_group(rank, world_size, size, stride, "fake"))
    place = (mesh.get_coordinate() or [0])[0]
    samples, targets = next(batches_of(plan, 0))
    if plan.parallelism.pipeline > 1:
        return _stages_step(plan, model, place, samples, targets)
    spread = Spread(model, plan.parallelism, plan.recipe, units=plan.units, mesh=mesh)
    if isinstance(spread.model, DistributedDataParallel):
        spread.model.register_comm_hook(None, _own_gradients)

    def step() -> None:
        spread.optimizer.zero_grad()
        spread.forward_and_back(samples, targets)
        spread.optimizer.step()

    return step


def _own_gradients(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    future = torch.futures.Future[torch.Tensor]()
    future.set_result(bucket.buffer())
    return future


def _stages_step(
    plan: StrategyPlan, model: torch.nn.Module, place: int, samples: torch.Tensor, targets: torch.Tensor
) -> Callable[[], object]:
    """Return a function that runs a training step of a pipeline rank's stages, without communication."""
    blocks, pieces = named_blocks(model, plan.model), plan.parallelism.pieces
    stages = [torch.nn.Sequential(*(blocks[name] for name in stage)) for stage in plan.stages]
    inputs = list[torch.Tensor]()
    activations, piece_targets = samples.chunk(pieces)[0], targets.chunk(pieces)[0]
    stage_numbers = range(place, len(stages), plan.parallelism.pipeline)
    for number, stage in enumerate(stages):
        inputs.append(activations)
        with torch.no_grad():
            activations = move(stage, own_device())(activations)
        if number not in stage_numbers:
            move(stage, torch.device("cpu"))
    kind, options = optimizer_of(plan.recipe)
    optimizer = kind([each for number in stage_numbers for each in stages[number].parameters()], **options)

    def step() -> None:
        optimizer.zero_grad()
        for number in stage_numbers:
            for _ in range(pieces):
                stage_input = inputs[number].detach()
                output = stages[number](stage_input.requires_grad_(stage_input.is_floating_point()))
                if number == len(stages) - 1:
                    loss_of(output, piece_targets).backward()
                else:
                    output.backward(torch.ones_like(output))
        optimizer.step()

    return step


def own_group(rank: int, world_size: int, size: int, stride: int, backend: str | None = None) -> dist.ProcessGroup:
    """Return this rank's group of ``size`` ranks, whose world ranks are ``stride`` apart.

    All ranks must call this, because every rank has to create all groups.
    """
    firsts = [first for first in range(world_size) if first // stride % size == 0]
    members = [range(first, first + stride * size, stride) for first in firsts]
    groups = {ranks: dist.new_group([*ranks], backend=backend) for ranks in members if ranks[-1] < world_size}
    own = next(group for ranks, group in groups.items() if rank in ranks)
    assert isinstance(own, dist.ProcessGroup)
    return own


def _call(rank: int, timed: TimedCollective, group: dist.ProcessGroup) -> Callable[[], object]:
    """Return a function that runs a collective on ``group`` with the same call as torch's parallelism classes."""
    members = dist.get_process_group_ranks(group)
    count = max(1, timed.nbytes // FLOAT // timed.size) * timed.size
    full_tensor, part = (torch.zeros(each, device=own_device()) for each in (count, count // timed.size))
    if timed.collective == "all_reduce":
        return lambda: dist.all_reduce(full_tensor, group=group)
    if timed.collective == "all_gather":
        return lambda: all_gather_single(full_tensor, part, group=group)
    if timed.collective == "reduce_scatter":
        return lambda: reduce_scatter_single(part, full_tensor, group=group)
    if timed.collective == "broadcast":
        return lambda: dist.broadcast(full_tensor, members[0], group=group)
    if timed.collective == "send_recv":
        return lambda: _pass_on(rank, members, full_tensor)
    raise ValueError(f"no strategy calls {timed.collective}")


def _pass_on(rank: int, members: Sequence[int], message: torch.Tensor) -> None:
    if rank == members[0]:
        dist.send(message, members[1])
    elif rank == members[1]:
        dist.recv(message, members[0])


def _median_seconds(call: Callable[[], object]) -> float:
    seconds = list[float]()
    for _ in range(WARM_UP + MEASURED):
        dist.barrier()
        seconds.append(seconds_of(call, own_device()))
    return median(seconds[WARM_UP:])
