"""The handle of a posted operation. Waiting for it takes virtual time."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from virtual.matching.posted import Posted
from virtual.ranks.rank import Rank, RankWait
from virtual.ranks.world import VirtualWorld

POLL_S = 1e-6  # virtual time of a query, so that polling loops end
VAIN_POLLS = 100_000  # queries without progress, after which the rank hangs


class VirtualWork(dist.Work):
    """The handle of a send, a receive or a rank's part of a collective, with the methods of ``dist.Work``."""

    def __init__(self, posted: Posted, result: Any) -> None:
        super().__init__()
        self.posted, self.outcome = posted, result
        self._future: torch.futures.Future[Any] | None = None
        posted.rank.unwaited[id(self)] = self

    @property
    def _world(self) -> VirtualWorld:
        return self.posted.group.world

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the operation is done, and raise its error if it failed. ``timeout`` is ignored."""
        posted = self.posted
        rank, world = posted.rank, self._world
        rank.unwaited.pop(id(self), None)
        world.computing.charge(rank)
        posted.group.recorder.wait(posted)
        world.wait_until(rank, self._is_done, RankWait(posted.what, posted.site, posted))
        world.watch.waited(posted)
        if rank.futures:
            set_futures(rank)
        if posted.error is not None:
            raise posted.error
        if not posted.group.is_ordered or posted.is_barrier:
            rank.meet_device()  # otherwise only the device waits
        return True

    def _is_done(self) -> bool:
        return self.posted.is_done

    def is_completed(self) -> bool:
        """Return whether the operation is done. The query takes a microsecond of virtual time."""
        rank = self.posted.rank
        poll(self._world, rank, RankWait(self.posted.what, self.posted.site, self.posted))
        if self.posted.is_done:
            rank.unwaited.pop(id(self), None)
        return self.posted.is_done

    def is_success(self) -> bool:
        return self.posted.is_done and self.posted.error is None

    def exception(self) -> Exception | None:
        return self.posted.error

    def synchronize(self) -> None:
        self.wait()

    block_current_stream = synchronize  # a rank has one clock for all its streams

    def result(self) -> Any:
        return self.outcome

    def source_rank(self) -> int:
        """Return the group rank from which a message was received, or -1 if no message was received."""
        return -1 if self.posted.source is None else self.posted.source

    _source_rank = source_rank

    def get_future(self) -> "torch.futures.Future[Any]":
        """Return a future of the operation's result. The rank's own thread sets the future and runs its callbacks."""
        posted = self.posted
        posted.rank.unwaited.pop(id(self), None)
        if self._future is None:
            self._future = torch.futures.Future()
            if posted.is_done and self._world.calendar.has_time:
                self.set_future()
            else:  # without a calendar, it is done before the rank may know
                posted.rank.futures.append(self)
            self._set_before_backward_ends()
        return self._future

    def set_future(self) -> None:
        posted, future = self.posted, self._future
        assert future is not None
        self._world.computing.charge(posted.rank)
        self._world.watch.waited(posted)
        error = posted.error
        act = (lambda: future.set_result(self.outcome)) if error is None else lambda: future.set_exception(error)
        if not posted.group.recorder.wait_if_followed(posted, act):
            posted.rank.unrecorded.append(posted)

    def _set_before_backward_ends(self) -> None:
        """Set the rank's pending futures before backward ends.

        DDP's Reducer waits for these futures in C++ while it holds the run token, so no other code could set them.
        """
        if torch._C._current_graph_task_id() == -1:
            return
        world, rank = self._world, self.posted.rank
        if torch._C._current_autograd_node() is None:  # in a callback after backward: a static graph's first step
            drain(world, rank)
        else:
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: drain(world, rank))


def poll(world: VirtualWorld, rank: Rank, waiting: RankWait) -> None:
    """Let other ranks run while a rank polls. Report a hang after ``VAIN_POLLS`` polls without progress."""
    world.computing.charge(rank)
    rank.host = rank.clock  # a rank that polls has no other work
    rank.spend(POLL_S)
    seen = rank.extra.setdefault("polls", [world.progress, 0])
    if seen[0] != world.progress:
        seen[:] = [world.progress, 0]
    seen[1] += 1
    if seen[1] > VAIN_POLLS:
        rank.waiting = waiting
        world.stop(rank.job, world.diagnoser.hang(rank.job))
    world.catch_up(rank, waiting)
    if not world.calendar.has_time:
        world.give_way(rank)


def set_futures(rank: Rank) -> None:
    """Set the futures of finished operations. Their callbacks may post more operations."""
    while (work := next((work for work in rank.futures if work.posted.is_done), None)) is not None:
        rank.futures.remove(work)
        work.set_future()


def drain(world: VirtualWorld, rank: Rank) -> None:
    while rank.futures:
        wait_for_a_future(world, rank)
    record_waits(world, rank)


def record_waits(world: VirtualWorld, rank: Rank) -> None:
    """Record the rank's waits for operations whose futures are already set."""
    world.computing.charge(rank)
    for posted in rank.unrecorded:
        posted.group.recorder.wait(posted)
    rank.unrecorded.clear()


def wait_for_a_future(world: VirtualWorld, rank: Rank) -> None:
    first: Posted = rank.futures[0].posted
    waiting = RankWait(first.what, first.site, first)
    world.wait_until(rank, lambda: any(work.posted.is_done for work in rank.futures), waiting)
    set_futures(rank)


def wait_for_future(world: VirtualWorld, rank: Rank, original: Callable[[Any], Any], future: Any) -> Any:
    """Wait for a future in virtual time, then call torch's ``Future.wait``."""
    while not future.done() and rank.futures:
        wait_for_a_future(world, rank)
    if rank.unrecorded:
        record_waits(world, rank)
    return original(future)
