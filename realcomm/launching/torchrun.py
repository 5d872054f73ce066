"""This process as one rank of a run that torchrun started."""

import atexit
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from collectives.errors import InputError
from collectives.records.environment import threads_per_rank
from realcomm.launching.failures import TimedOut, failed, is_timeout
from realcomm.launching.status import private_slot
from realcomm.launching.types import Progress, Worker
from realcomm.launching.worker import (
    doing,
    done_so_far,
    loopback,
    reporting,
    select_device,
    yield_to_ranks,
)


def under_torchrun() -> bool:
    """Whether somebody else has started this process as one rank of several."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def work(
    worker: Worker,
    world_size: int,
    args: Sequence[Any],
    backend: str,
    threads: int | None,
    timeout: float,
    progress: Progress | None,
) -> list[Any]:
    """``worker`` has run here as this process's rank; the results of all ranks. Raises as ``launch`` does."""
    rank, found = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if found != world_size:
        raise InputError(
            f"torchrun started {found} ranks (WORLD_SIZE), but {world_size} are needed; "
            f"start it with --nproc-per-node {world_size}"
        )

    def report(done: int, total: int, text: str) -> None:
        if progress is not None:
            progress(rank, done, total, text)

    with reporting(private_slot(), report):
        try:
            _join(backend, threads, timeout)
            return _results(worker, rank, world_size, args)
        except InputError:
            raise
        except Exception as error:
            if is_timeout(error):
                raise TimedOut(f"not done after {timeout:g} s; rank {rank}: {done_so_far()}") from error
            raise failed(rank, error, done_so_far()).error() from error


def _join(backend: str, threads: int | None, timeout: float) -> None:
    """The default group spans all ranks, until this process ends."""
    import torch
    import torch.distributed as dist

    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    torch.set_num_threads(threads or threads_per_rank(local_ranks))
    allowed = timedelta(seconds=timeout)
    if dist.is_initialized():
        # Torch before 2.15 has it with an underscore only.
        (getattr(dist, "set_timeout", None) or dist.distributed_c10d._set_pg_timeout)(allowed)
        return
    doing("joining the group")
    if local_ranks == int(os.environ["WORLD_SIZE"]):  # all here, so nobody outside need reach us
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())
        os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback())
    select_device(backend, int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group(backend, timeout=allowed)
    yield_to_ranks()
    atexit.register(_leave)


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def _results(worker: Worker, rank: int, world_size: int, args: Sequence[Any]) -> list[Any]:
    import torch.distributed as dist

    doing("working")
    result = worker(rank, world_size, *args)
    doing("exchanging results")
    results: list[Any] = [None] * world_size
    dist.all_gather_object(results, result)  # pickles of our own ranks
    return results
