"""Run this process as one rank if torchrun has started it, or if it has already joined a group."""

import atexit
import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from collectives.errors import InputError
from collectives.records.environment import threads_per_rank
from realcomm.launching.failures import TimedOut, failure_by_exception, is_timeout, timeout_by_exception
from realcomm.launching.hangs import (
    MARGIN_S,
    describe_unfinished,
    exit_on_hang,
    oldest_unfinished,
    report_hangs_by,
    watch_by,
)
from realcomm.launching.rendezvous import LocalRanks, Rendezvous, meet, read_local_ranks
from realcomm.launching.status import get_status, private_slot, set_status, status_in
from realcomm.launching.torch_process import keep_freed_memory
from realcomm.launching.types import Progress, Worker, find_worker


def under_torchrun() -> bool:
    """Return whether torchrun or a similar launcher started this process, or whether it has joined a default group.

    A default group of one rank also counts. Processes of ``torch.multiprocessing.spawn`` count once they join a group.

    >>> under_torchrun()
    False
    """
    return ("RANK" in os.environ and "WORLD_SIZE" in os.environ) or is_in_group()


def is_in_group() -> bool:
    """Return whether this process has joined a default group.

    >>> is_in_group()
    False
    """
    return _joined() is not None


def _joined() -> Any:
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def ranks_started() -> int | None:
    """Return the number of ranks that torchrun or a similar launcher started, or None.

    >>> ranks_started()
    """
    ranks = os.environ.get("WORLD_SIZE", "") if "RANK" in os.environ else ""
    return int(ranks) if ranks.isdecimal() else None


def spans_nodes(timeout: float = 600.0) -> bool:
    """Return whether the ranks that torchrun or a similar launcher started are on several nodes.

    If torchrun's variables do not contain the answer, all ranks must call this. Their first call then exchanges the
    ranks' hosts, and waits up to ``timeout`` seconds for all ranks.

    >>> spans_nodes()
    False
    """
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ and not _local_ranks(timeout).are_all


class _Met:
    """A cache for this process's rendezvous, because its store can be opened only once."""

    rendezvous: Rendezvous | None = None


def _local_ranks(timeout: float) -> LocalRanks:
    rank, world_size = _rank_and_world_size()
    if local := read_local_ranks():
        return local
    if _Met.rendezvous is None and is_in_group():
        local_size = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
        return LocalRanks(local_size, 0, local_size == world_size)
    _Met.rendezvous = _Met.rendezvous or meet(rank, world_size, timeout)
    return _Met.rendezvous.local


def has_stale_store() -> bool:
    """Return whether there are several nodes and torchrun's store may contain values from before a restart.

    >>> has_stale_store()
    False
    """
    may_restart = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    return spans_nodes() and may_restart and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def restarts() -> int:
    """Return how often torchrun has restarted the ranks after a failure.

    >>> restarts()
    0
    """
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(count) if count.isdecimal() else 0


def run_under_torchrun(
    worker: Worker,
    world_size: int,
    args: Sequence[Any],
    backend: str,
    threads: int | None,
    timeout: float,
    progress: Progress | None,
) -> list[Any]:
    """Call ``worker`` as this process's rank; return the results of all ranks. Raise the same errors as ``launch``."""
    rank, group_size = _rank_and_world_size()
    if group_size != world_size:
        message = f"the group has {group_size} ranks, but {world_size} are needed"
        if "WORLD_SIZE" in os.environ:
            message = f"torchrun started {group_size} ranks (WORLD_SIZE), but {world_size} are needed; start with "
            message += f"--nproc-per-node {world_size}, or on several nodes with --nnodes and a product of {world_size}"
        raise InputError(message)

    def report(done: int, total: int, text: str) -> None:
        if progress is not None:
            progress(rank, done, total, text)

    began = time.monotonic()
    report_hangs_by(exit_on_hang(rank, timeout))
    with status_in(private_slot(), report):
        try:
            _join(backend, threads, timeout)
            return _results(worker, rank, world_size, args)
        except (InputError, TimedOut):
            raise
        except Exception as error:
            if is_timeout(error):
                elapsed = time.monotonic() - began
                failure: Exception = timeout_by_exception(rank, error, get_status(), elapsed, timeout)
            else:
                failure = failure_by_exception(rank, error, get_status()).to_exception()
            if unfinished := describe_unfinished():
                failure.add_note(f"rank {rank}: NCCL's {unfinished}")
            raise failure from error


def _rank_and_world_size() -> tuple[int, int]:
    if dist := _joined():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def _join(backend: str, threads: int | None, timeout: float) -> None:
    """Join the group of all ranks, and leave it when this process exits.

    If this process is already in a group, set this group's timeout and, on GPUs, the current device instead.
    """
    import torch

    from realcomm.launching.group import join_by_environment, leave, loopback, reach_other_hosts, use_own_device

    local = _local_ranks(timeout)
    torch.set_num_threads(threads or threads_per_rank(local.count))
    keep_freed_memory()
    allowed = timedelta(seconds=timeout)
    if dist := _joined():
        # torch before 2.15 has only the name with an underscore
        set_timeout = getattr(dist, "set_timeout", None) or dist.distributed_c10d._set_pg_timeout
        device = use_own_device()
        on_gpu = device.type == "cuda"
        set_timeout(allowed + timedelta(seconds=MARGIN_S * on_gpu))
        if on_gpu:
            watch_by(oldest_unfinished)
        return
    set_status("joining the group")
    if local.are_all:  # all ranks are on this machine
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())
        os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback())
    reach_other_hosts()
    attempt = restarts() if local.are_all else 0  # with several nodes, each counts its own
    store = _Met.rendezvous.store if _Met.rendezvous else None
    join_by_environment(backend, local.own, allowed, attempt, store)
    atexit.register(leave)


def _results(worker: Worker, rank: int, world_size: int, args: Sequence[Any]) -> list[Any]:
    set_status("working")
    result = find_worker(worker)(rank, world_size, *args)
    set_status("exchanging results")
    results: list[Any] = [None] * world_size
    _joined().all_gather_object(results, result)  # pickles of our own ranks
    return results
