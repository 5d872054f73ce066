"""Ranks on gloo that follow NCCL's rules, so that a deadlock on GPUs is a deadlock here too.

A communicator executes its message groups one after another. The host is the compute stream: waiting for a message
blocks later posts. A wait for the device waits for all communicators.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Any

import real_cases
import torch
import torch.distributed as dist

from realcomm.execution import events, executor, nccl
from realcomm.execution.collective_sequence import Collective
from realcomm.execution.events import Event
from realcomm.execution.executor import Executor

run = Executor.run


class Works:
    """gloo's work handles, each of which must be waited for once."""

    def __init__(self, works: list[dist.Work]) -> None:
        self._works = works

    def wait(self) -> None:
        while self._works:
            self._works.pop().wait()


def post_to_gloo(
    group: dist.ProcessGroup, receives: Sequence[nccl.Addressed], sends: Sequence[nccl.Addressed], device: torch.device
) -> Works:
    """Post messages one by one, as gloo has no groups of them."""
    works = [group.recv(data, peer, 0) for peer, data in receives]
    return Works(works + [group.send(data, peer, 0) for peer, data in sends])


def post_by_gloo() -> None:
    """Let this rank post in groups, as on a GPU, with gloo as the transport."""
    for place, name, value in (
        (nccl, "post_group", post_to_gloo),
        (executor, "post_group", post_to_gloo),
        (executor, "needs_groups", lambda device: True),
    ):
        setattr(place, name, value)


class Posted:
    def __init__(self, done: "Future[None]") -> None:
        self._done = done

    def wait(self) -> None:
        self._done.result()


class Communicators:
    """The communicators of one rank, each a thread that executes one message group after another."""

    def __init__(self) -> None:
        self._threads: dict[dist.ProcessGroup, ThreadPoolExecutor] = {}
        self._last: dict[dist.ProcessGroup, Future[None]] = {}

    def post(
        self,
        group: dist.ProcessGroup,
        receives: Sequence[nccl.Addressed],
        sends: Sequence[nccl.Addressed],
        device: torch.device,
    ) -> Posted:
        thread = self._threads.setdefault(group, ThreadPoolExecutor(1))
        self._last[group] = thread.submit(lambda: post_to_gloo(group, receives, sends, device).wait())
        return Posted(self._last[group])

    def synchronize(self, device: object = None) -> None:
        for done in self._last.values():
            done.result()


class HostEvent:
    """An event on the compute stream, which is the host."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self, stream: object) -> None:
        self.at = perf_counter()

    def synchronize(self) -> None:
        assert self.at

    def elapsed_time(self, later: "HostEvent") -> float:
        return 1e3 * (later.at - self.at)


def keep_nccls_rules() -> None:
    communicators, recorder = Communicators(), events.EventRecorder
    replaced: list[tuple[Any, str, object]] = [
        (torch.cuda, "Event", HostEvent),
        (torch.cuda, "current_stream", lambda device: None),
        (torch.cuda, "synchronize", communicators.synchronize),
        (nccl, "post_group", communicators.post),
        (executor, "post_group", communicators.post),
        (executor, "needs_groups", lambda device: True),
        (executor, "EventRecorder", lambda device, *which: recorder(torch.device("cuda"), *which)),
    ]
    for place, name, value in replaced:
        setattr(place, name, value)


def recorded_run(
    self: Executor, tensor: torch.Tensor, record: list[Event] | None = None, collective: Collective | None = None
) -> None:
    """Run a program with a record, whether or not one is requested."""
    recorded: list[Event] = []
    begin = perf_counter()
    run(self, tensor, recorded, collective)
    assert all(begin <= event.begin <= event.end for event in recorded)


def record_all(rank: int, world_size: int, cases: Sequence[real_cases.Case]) -> tuple[int, list[str]]:
    keep_nccls_rules()
    setattr(Executor, "run", recorded_run)  # noqa: B010
    return real_cases.compare_with_torch(rank, world_size, cases)
