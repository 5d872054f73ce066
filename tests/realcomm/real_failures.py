"""Workers whose collectives fail on purpose on some ranks, and the behavior of their groups afterwards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from real_calls import Call, build
from real_functions import FUNCTIONS

import realcomm
from realcomm.execution.collective_sequence import Collective, CollectiveSequence, sequence_of
from realcomm.execution.executor import Executor

BEFORE, MIDDLE, AFTER = 0, 1, 1 << 30  # steps that complete before the failure


@contextmanager
def failing_next(group: dist.ProcessGroup, error: BaseException, after: int = BEFORE) -> Iterator[None]:
    """Let the next collective that this process calls on ``group`` fail after ``after`` steps, or at its end.

    Another thread may execute the collective.
    """
    begin, run, complete = CollectiveSequence.begin, Executor._run, Executor._complete
    sequence, chosen, done = sequence_of(group), list[Collective](), list[object]()

    def note(self: CollectiveSequence, name: str) -> Collective:
        collective = begin(self, name)
        if self is sequence and not chosen:
            chosen.append(collective)
        return collective

    def run_until(self: Executor, tensor: torch.Tensor, record: Any, number: int) -> None:
        fails = self._sequence is sequence and bool(chosen) and chosen[0].number == number
        if fails and not after:
            raise error
        self._complete = (lambda *arguments: count(self, *arguments)) if fails else complete.__get__(self)  # type: ignore[method-assign]
        run(self, tensor, record, number)
        if fails:
            raise error

    def count(self: Executor, *arguments: Any) -> None:
        complete(self, *arguments)
        done.append(arguments)
        if len(done) == after:
            raise error

    with patch.object(CollectiveSequence, "begin", note), patch.object(Executor, "_run", run_until):
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


def all_functions_fail(rank: int, world_size: int, after: int, async_op: bool) -> dict[str, list[str]]:
    """Fail each function on rank 1 in its own group; return this rank's outcome, then that of a barrier."""
    outcomes = dict[str, list[str]]()
    groups = {name: dist.new_group(timeout=timedelta(seconds=1)) for name in FUNCTIONS}
    for name, group in groups.items():
        if rank == 1:
            with failing_next(group, OSError("on purpose"), after):
                outcomes[name] = [outcome(lambda name=name, group=group: call_on(name, group, async_op))]
            outcomes[name] += [outcome(lambda group=group: realcomm.barrier(group))]
            outcomes[name] += [
                outcome(lambda group=group: realcomm.execute("barrier/naive", torch.ones(1), group=group))
            ]
    if rank != 1:  # all at once, as each waits for rank 1 until its group's timeout
        works = {name: call_on(name, group, async_op=True) for name, group in groups.items()}
        outcomes = {name: [outcome(lambda work=work: work)] for name, work in works.items()}
        later = {name: group for name, group in groups.items() if outcomes[name] != ["done"]}
        for name, group in later.items():
            outcomes[name] += [outcome(lambda group=group: realcomm.barrier(group))]
    return outcomes


def queued_behind_a_failure(rank: int, world_size: int) -> list[str]:
    """Fail the first of three asynchronous collectives; return the outcomes of rank 0's handles and next call."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    if rank == 1:
        dist.barrier()  # nothing of rank 0 can be done before all of it has begun
        return [outcome(lambda: realcomm.all_reduce(torch.ones(1000), group=group))]
    with failing_next(group, MemoryError("on purpose"), MIDDLE):
        works = [realcomm.all_reduce(torch.ones(1000), group=group, async_op=True) for _ in range(3)]
        dist.barrier()
        return [*(outcome(lambda work=work: work) for work in works), outcome(lambda: realcomm.barrier(group))]


def interrupted(rank: int, world_size: int) -> list[str]:
    """Interrupt a queued collective, and a running one; return the outcome of the next one."""
    outcomes = []
    for at_work in (False, True):
        group = dist.new_group(timeout=timedelta(seconds=5))
        works = [realcomm.all_reduce(torch.ones(3), group=group, async_op=True)]
        with failing_next(group, KeyboardInterrupt(), MIDDLE) if at_work else interrupting_the_queue():
            outcomes.append(outcome(lambda group=group: realcomm.barrier(group)))
        outcomes.append(outcome(lambda group=group: realcomm.broadcast(torch.ones(1), group=group)))
        works[0].wait()
    return outcomes


@contextmanager
def interrupting_the_queue() -> Iterator[None]:
    from realcomm.functions import work

    def join(self: object) -> None:
        raise KeyboardInterrupt

    with patch.object(work._Queue, "join", join):
        yield


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
