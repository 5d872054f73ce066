"""What a rank takes for the pieces of a step by themselves: its computing, its optimizer, and collectives."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from collectives.records.model_profile import Measured
from collectives.training.parallelism import Parallelism
from realcomm.execution.device_clock import seconds_of
from realcomm.forms.plan import FormPlan, batch_of
from realcomm.forms.spread import Spread, mesh_of_one
from realcomm.launching.group import own_device
from realcomm.launching.status import set_status
from realcomm.profiling.measured import measure
from realcomm.profiling.meta import profile_on_meta
from realcomm.training.running import EndlessBatches

WARM_UP, REPEATED = 2, 7
FLOAT = 4  # bytes


class Question(NamedTuple):
    """A collective of a buffer of ``nbytes`` among ``size`` ranks, each ``stride`` after the one before."""

    collective: str
    nbytes: int
    size: int
    stride: int = 1


class RankTimes(NamedTuple):
    """What a rank measured: its computing, seconds of the optimizer on the whole model, and of each question.

    ``alone`` is the computing of the first rank while the others wait, ``loading_s`` what it waits for a batch of a
    data set.
    """

    computing: Measured
    alone: Measured | None
    optimizer_s: float
    collectives_s: list[float]
    loading_s: float = 0.0


def time_pieces(rank: int, world_size: int, plan: FormPlan, asked: Sequence[Question]) -> RankTimes:
    """Time a model's layers and optimizer and each collective; all ranks at once, and layers on one rank alone too."""
    set_status("timing the pieces of a step")
    source, samples = plan.source, plan.samples_at_once
    groups = {shape: _own_group(rank, world_size, *shape) for shape in dict.fromkeys(one[2:] for one in asked)}
    dist.barrier()
    profile, device = profile_on_meta(source), own_device()
    threads = torch.get_num_threads() if device.type == "cpu" else None
    alone = None if rank else measure(source, profile, samples, device=str(device), threads=threads)
    dist.barrier()
    computing = measure(source, profile, samples, device=str(device), threads=threads)
    built = Spread(source.build().to(device), Parallelism(data=1), plan.recipe, mesh=mesh_of_one(rank, world_size))
    for each in built.model.parameters():
        each.grad = torch.zeros_like(each)
    stepping = _median_seconds(lambda: _done(built.optimizer.step()))
    collectives = [_median_seconds(_call(rank, one, groups[one[2:]])) for one in asked]
    return RankTimes(computing, alone, stepping, collectives, _time_loading(plan))


def _time_loading(plan: FormPlan) -> float:
    """Return the seconds that a replica waits for a batch, where one follows the other at once."""
    if plan.images is None:
        return 0.0
    batches = EndlessBatches(plan.images, 0, plan.form.data)
    batches.take_prefetched()
    return _median_seconds(lambda: _done(next(batches)))


def time_own_work(rank: int, world_size: int, plans: Sequence[FormPlan]) -> list[float]:
    """Return the seconds of a step that torch takes of its own in the form of each plan; all ranks at once.

    The form is made on a mesh of this rank alone, where nothing travels and nothing is divided, and its step is timed
    beside one of the plain model, in turn. What it takes longer is what torch does besides: its dispatch of operations
    on DTensors, hooks, copies into buffers and out of them. Of a pipeline, which has no stages then, it is nothing.
    """
    mesh = mesh_of_one(rank, world_size)
    return [
        0.0
        if plan.form.pipeline > 1
        else _more_seconds(_stepper(plan, mesh), _stepper(plan._replace(form=Parallelism(data=1)), mesh))
        for plan in plans
    ]


def _stepper(plan: FormPlan, mesh: DeviceMesh) -> Callable[[], None]:
    """Return what carries out a step of a form on as many samples as a rank has at once."""
    spread = Spread(plan.source.build().to(own_device()), plan.form, plan.recipe, units=plan.units, mesh=mesh)
    batch, targets = (each.to(own_device()) for each in batch_of(plan, 0, plan.samples_at_once * plan.form.pieces))

    def step() -> None:
        spread.optimizer.zero_grad()
        spread.forward_and_back(batch, targets)
        spread.optimizer.step()

    return step


def _more_seconds(one: Callable[[], None], other: Callable[[], None]) -> float:
    """Return what one call takes longer than another, in turns of both; not below nothing."""
    more = list[float]()
    for _ in range(WARM_UP + REPEATED):
        seconds = list[float]()
        for call in (one, other):
            dist.barrier()
            seconds.append(seconds_of(call, own_device()))
        more.append(seconds[0] - seconds[1])
    return max(0.0, median(more[WARM_UP:]))


def _own_group(rank: int, world_size: int, size: int, stride: int) -> dist.ProcessGroup:
    """Return this rank's group of so many ranks; all ranks make all of them."""
    firsts = [first for first in range(world_size) if first // stride % size == 0]
    groups = [[first + stride * place for place in range(size)] for first in firsts]
    made = [(dist.new_group(members), members) for members in groups if members[-1] < world_size]
    found = next(group for group, members in made if rank in members)
    assert isinstance(found, dist.ProcessGroup)
    return found


def _call(rank: int, one: Question, group: dist.ProcessGroup) -> Callable[[], None]:
    """Return what carries out a collective as torch's forms call it."""
    members = dist.get_process_group_ranks(group)
    count = max(1, one.nbytes // FLOAT // one.size) * one.size
    whole, part = (torch.zeros(each, device=own_device()) for each in (count, count // one.size))
    if one.collective == "all_reduce":
        return lambda: _done(dist.all_reduce(whole, group=group))
    if one.collective == "all_gather":
        return lambda: _done(dist.all_gather_single(whole, part, group=group))
    if one.collective == "reduce_scatter":
        return lambda: _done(dist.reduce_scatter_single(part, whole, group=group))
    if one.collective == "broadcast":
        return lambda: _done(dist.broadcast(whole, members[0], group=group))
    if one.collective == "send_recv":
        return lambda: _pass_on(rank, members, whole)
    raise ValueError(f"no form of torch's calls {one.collective} here")


def _pass_on(rank: int, members: Sequence[int], whole: torch.Tensor) -> None:
    """Send from the first rank of the members to the second."""
    if rank == members[0]:
        dist.send(whole, members[1])
    elif rank == members[1]:
        dist.recv(whole, members[0])


def _done(_: object) -> None:
    """Say that what a call returned is of no use."""


def _median_seconds(call: Callable[[], None]) -> float:
    seconds = list[float]()
    for _ in range(WARM_UP + REPEATED):
        dist.barrier()
        seconds.append(seconds_of(call, own_device()))
    return median(seconds[WARM_UP:])
