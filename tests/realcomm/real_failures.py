"""Workers whose collectives fail on purpose on some ranks, and the behavior of their groups afterwards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from real_calls import Call, build
from real_functions import FUNCTIONS

import realcomm
from realcomm.execution.collective_sequence import Collective, CollectiveSequence, sequence_of
from realcomm.execution.executor import Executor


@contextmanager
def failing_next(group: dist.ProcessGroup, error: BaseException, after: bool = False) -> Iterator[None]:
    """Let the next collective that this process calls on ``group`` fail before its first step, or after its last.

    Another thread may execute the collective.
    """
    begin, run = CollectiveSequence.begin, Executor._run
    sequence, chosen = sequence_of(group), list[Collective]()

    def note(self: CollectiveSequence, name: str) -> Collective:
        collective = begin(self, name)
        if self is sequence and not chosen:
            chosen.append(collective)
        return collective

    def run_or_fail(self: Executor, tensor: torch.Tensor, record: Any, number: int) -> None:
        fails = self._sequence is sequence and bool(chosen) and chosen[0].number == number
        if after or not fails:
            run(self, tensor, record, number)
        if fails:
            raise error

    with patch.object(CollectiveSequence, "begin", note), patch.object(Executor, "_run", run_or_fail):
        yield


def call_on(name: str, group: Any, async_op: bool = False) -> Any:
    return build(Call(name), dist.get_rank(group), dist.get_world_size(group)).make(group, async_op)


def outcome(call: Callable[[], Any]) -> str:
    """Return "done", or the error of a call and, if it has a handle, of the wait for it."""
    try:
        work = call()
        if work is not None:
            work.wait()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def all_functions_fail(rank: int, world_size: int, after: bool, async_op: bool) -> dict[str, list[str]]:
    """Fail each function on rank 1 in its own group; return this rank's outcome, then that of a barrier."""
    outcomes = dict[str, list[str]]()
    groups = {name: dist.new_group(timeout=timedelta(seconds=0.5)) for name in FUNCTIONS}
    if rank == 1:
        for name, group in groups.items():
            naive = partial(realcomm.execute, "barrier/naive", torch.ones(1), group=group)
            with failing_next(group, OSError("on purpose"), after):
                outcomes[name] = [outcome(partial(call_on, name, group, async_op))]
            outcomes[name] += map(outcome, (partial(realcomm.barrier, group), naive))
        return outcomes
    works = {name: call_on(name, group, async_op=True) for name, group in groups.items()}  # all wait at the same time
    outcomes = {name: [outcome(partial(lambda work: work, work))] for name, work in works.items()}
    for name, group in groups.items():
        if outcomes[name] != ["done"]:
            outcomes[name] += [outcome(partial(realcomm.barrier, group))]
    return outcomes


def queued_behind_a_failure(rank: int, world_size: int) -> list[str]:
    """Fail the first of three asynchronous collectives; return the outcomes of rank 0's handles and next call."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    if rank == 1:
        dist.barrier()  # nothing of rank 0 can be done before all of it has begun
        return [outcome(lambda: realcomm.all_reduce(torch.ones(1000), group=group))]
    with failing_next(group, MemoryError("on purpose"), after=True):
        works = [realcomm.all_reduce(torch.ones(1000), group=group, async_op=True) for _ in range(3)]
        dist.barrier()
        return [*(outcome(lambda work=work: work) for work in works), outcome(lambda: realcomm.barrier(group))]


def interrupted(rank: int, world_size: int) -> list[str]:
    """Interrupt a queued collective, and a running one; return the outcome of the next one."""
    outcomes = []
    for at_work in (False, True):
        group = dist.new_group(timeout=timedelta(seconds=5))
        works = [realcomm.all_reduce(torch.ones(3), group=group, async_op=True)]
        queue = patch("realcomm.functions.work._Queue.join", side_effect=KeyboardInterrupt)
        with failing_next(group, KeyboardInterrupt(), after=True) if at_work else queue:
            outcomes.append(outcome(lambda group=group: realcomm.barrier(group)))
        outcomes.append(outcome(lambda group=group: realcomm.broadcast(torch.ones(1), group=group)))
        works[0].wait()
    return outcomes


def numbers_apart(rank: int, world_size: int) -> list[str]:
    """Let ranks call different collectives of a group; return their outcomes. No rank may get another's data."""
    outcomes = []
    calls = [
        lambda group: realcomm.all_reduce(torch.ones(8), group=group),  # rank 0 is one collective ahead
        lambda group: realcomm.all_reduce(torch.ones(8 - 4 * rank), group=group),
        lambda group: realcomm.all_reduce(torch.ones(8), op="max" if rank else "sum", group=group),
        lambda group: (realcomm.broadcast if rank else realcomm.all_reduce)(torch.ones(8), group=group),
    ]
    for number, call in enumerate(calls):
        group = dist.new_group(timeout=timedelta(seconds=0.5))
        if number == 0 and rank == 0:
            sequence_of(group).begin("a collective that only this rank has called")
        outcomes.append(outcome(lambda call=call, group=group: call(group)))
        dist.barrier()
    return outcomes


def a_new_group_after_a_failure(rank: int, world_size: int) -> tuple[list[str], float]:
    """Fail in a group, destroy it and create a group of the same ranks. Other groups work in between."""
    group, tensor = dist.new_group(), torch.full((5,), rank + 1.0)
    with failing_next(group, OSError("on purpose")):
        outcomes = [outcome(lambda: realcomm.barrier(group))]
    outcomes += [outcome(lambda: realcomm.barrier(group)), outcome(lambda: realcomm.barrier())]
    dist.destroy_process_group(group)
    group = dist.new_group()
    realcomm.all_reduce(tensor, group=group)
    return outcomes, float(tensor.unique().item())


ON_TWO_RANKS = [queued_behind_a_failure, interrupted, numbers_apart, a_new_group_after_a_failure]
