"""Steps of several forms of parallelism in one launch: what each rank sends, keeps, and how long it takes."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from collectives.training.parallelism import Parallelism
from realcomm.execution.device_clock import device_clock
from realcomm.forms.counting import CountedCall, CountedCalls
from realcomm.forms.kept_memory import KeptActivations, KeptBytes, held_bytes
from realcomm.forms.spreading import Spread
from realcomm.launching.group import own_device
from realcomm.launching.status import set_status
from realcomm.profiling.model_sources import find_model
from realcomm.profiling.transformers import Transformer

COUNTED, COUNTED_DDP = 2, 3  # the step that counts: torch has agreed on the shapes of messages, on DDP's buckets


class FormPlan(NamedTuple):
    """A model, and the form in which so many ranks train on it; for all of them ``batch_size`` samples a step."""

    model: str  # a llama, by its dimensions
    form: Parallelism
    batch_size: int
    stages: tuple[tuple[str, ...], ...] = ()  # of a pipeline, the names of blocks
    steps: int = 0  # that are timed, behind those that are counted


class FormResult(NamedTuple):
    """What a rank did. Losses are of its own samples, of a pipeline on its last stage only."""

    calls: list[CountedCall]  # of one step
    held: KeptBytes
    activations: int  # the most bytes that autograd kept at once
    losses: list[float]
    step_s: list[float]
    optimizer_s: list[float]  # the part of each step behind backward


def run_forms(rank: int, world_size: int, plans: Sequence[FormPlan]) -> list[FormResult]:
    """Carry out each plan as one rank of the default group."""
    return [_run_form(plan) for plan in plans]


def _run_form(plan: FormPlan) -> FormResult:
    set_status(f"a step of {plan.form.label}")
    source = find_model(plan.model)
    torch.manual_seed(0)
    model = source.build().to(own_device())
    assert isinstance(model, Transformer)
    spread = Spread(model, plan.form, plan.stages)
    made, replica, data = torch.Generator().manual_seed(1), spread.place["data"], plan.form.data
    whole = torch.randint(source.vocabulary or 1, (plan.batch_size, *source.sample), generator=made)
    batch = whole.chunk(data)[replica].to(own_device())
    losses, calls, most = list[float](), list[CountedCall](), 0
    for _ in range(COUNTED_DDP if isinstance(spread.model, DistributedDataParallel) else COUNTED):
        count, kept = CountedCalls(), KeptActivations(spread.model)
        spread.optimizer.zero_grad()
        with count:
            with kept:
                loss = spread.forward(batch)
            spread.optimizer.step()
        losses += [] if loss is None else [loss]
        calls, most = count.calls, kept.most
    held, seconds, stepping = held_bytes(spread.model, spread.optimizer), list[float](), list[float]()
    for _ in range(plan.steps):
        dist.barrier()
        clock = device_clock(own_device())
        marks = [clock.now()]
        spread.optimizer.zero_grad()
        spread.forward(batch)
        marks.append(clock.now())
        spread.optimizer.step()
        begin, behind, end = map(clock.seconds, (*marks, clock.now()))
        seconds.append(end - begin)
        stepping.append(end - behind)
    return FormResult(calls, held, most, losses, seconds, stepping)
