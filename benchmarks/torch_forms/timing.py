"""What a rank takes for the pieces of a step by themselves: its computing, its optimizer, and collectives."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from benchmarks.torch_forms.spreading import Spread, mesh_of_one
from collectives.records.model_profile import Measured
from collectives.training.parallelism import Parallelism
from realcomm.execution.device_clock import seconds_of
from realcomm.launching.group import own_device
from realcomm.launching.status import set_status
from realcomm.profiling.measured import measure
from realcomm.profiling.meta import profile_on_meta
from realcomm.profiling.model_sources import ModelSource, Transformer, find_model

WARM_UP, REPEATED = 2, 7
FLOAT = 4  # bytes


class Question(NamedTuple):
    """A collective of a buffer of ``nbytes`` among ``size`` ranks, each ``stride`` after the one before."""

    collective: str
    nbytes: int
    size: int
    stride: int = 1


class RankTimes(NamedTuple):
    """What a rank measured: its computing, seconds of AdamW on the whole model, and of each question.

    ``alone`` is the computing of the first rank while the others wait.
    """

    computing: Measured
    alone: Measured | None
    optimizer_s: float
    collectives_s: list[float]


def time_pieces(rank: int, world_size: int, model: str, batch_size: int, asked: Sequence[Question]) -> RankTimes:
    """Time a model's layers and optimizer and each collective; all ranks at once, and layers on one rank alone too."""
    set_status("timing the pieces of a step")
    source = find_model(model)
    groups = {shape: _own_group(rank, world_size, *shape) for shape in dict.fromkeys(one[2:] for one in asked)}
    dist.barrier()
    profile, device = profile_on_meta(source), own_device()
    threads = torch.get_num_threads() if device.type == "cpu" else None
    alone = None if rank else measure(source, profile, batch_size, device=str(device), threads=threads)
    dist.barrier()
    computing = measure(source, profile, batch_size, device=str(device), threads=threads)
    built = source.build().to(device)
    for each in built.parameters():
        each.grad = torch.zeros_like(each)
    optimizer = torch.optim.AdamW(built.parameters(), lr=1e-3)
    stepping = _median_seconds(lambda: _done(optimizer.step()))
    return RankTimes(computing, alone, stepping, [_median_seconds(_call(rank, one, groups[one[2:]])) for one in asked])


def time_own_work(rank: int, world_size: int, model: str, batch_size: int, forms: Sequence[Parallelism]) -> list[float]:
    """Return the seconds of a step that torch takes of its own for each form; all ranks at once.

    The form is made on a mesh of this rank alone, where nothing travels and nothing is divided, and its step is timed
    beside one of the plain model, in turn. What it takes longer is what torch does besides: its dispatch of operations
    on DTensors, hooks, copies into buffers and out of them.
    """
    source, mesh = find_model(model), mesh_of_one(rank, world_size)
    batch = torch.randint(source.vocabulary or 1, (batch_size, *source.sample)).to(own_device())
    plain = Parallelism(data=1)
    return [_more_seconds(*(_stepper(source, one, mesh, batch) for one in (form, plain))) for form in forms]


def _stepper(source: ModelSource, form: Parallelism, mesh: DeviceMesh, batch: torch.Tensor) -> Callable[[], None]:
    """Return what carries out a step of a form."""
    model = source.build().to(own_device())
    assert isinstance(model, Transformer)
    spread = Spread(model, form, (), mesh)

    def step() -> None:
        spread.optimizer.zero_grad()
        spread.forward(batch)
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
