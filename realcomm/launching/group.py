"""The default group of torch.distributed: how a process joins it, and the device that it works on."""

import os
import socket
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous


def join_by_file(file: Path, backend: str, rank: int, world_size: int, timeout: float, interface: str) -> None:
    """Join the group of the ranks that name the same ``file``; ``interface`` is what they reach each other by.

    ``timeout`` in seconds is torch's own, for every message.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
    store = dist.FileStore(str(file), world_size)  # type: ignore[attr-defined]
    select_device(backend, rank, world_size)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout)
    )  # fmt: skip
    deprioritize_gloo()


def join_by_environment(
    backend: str,
    local_rank: int,
    local_ranks: int,
    timeout: timedelta,
    attempt: int = 0,
    store: Store | None = None,
) -> None:
    """Join the group that torchrun's environment variables describe; ``local_ranks`` of it are on this machine.

    After a restart torchrun may hand out the store of before, with the addresses of ranks that are gone. An ``attempt``
    above 0, the same on all ranks, has its own part of the store. A ``store`` is the one in which all ranks have met.
    """
    select_device(backend, local_rank, local_ranks)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if store is None and attempt:
        store, rank, world_size = next(rendezvous("env://", timeout=timeout))
    if store is None:
        dist.init_process_group(backend, timeout=timeout)
    else:
        own = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=own, rank=rank, world_size=world_size, timeout=timeout)
    deprioritize_gloo()


def leave() -> None:
    """Leave the group if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def deprioritize_gloo() -> None:
    """Schedule gloo's event loops as batch threads (``SCHED_BATCH``), which do not interrupt a thread at work.

    They keep their share of the cores. Otherwise, with few cores, a loop that wakes up takes the core from a rank that
    is sending and holds the lock of that connection. Gloo's loops do not wait for such a lock but try again and again
    (``Pair::handleEvents``), so the rank does not get its core back before the time slice ends: with 2 ranks on 2 cores
    half of all steps of 4 KiB took up to 4 ms rather than 0.1.
    """
    if not hasattr(os, "SCHED_BATCH"):  # only Linux has it
        return
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended, or may not be changed; it is an optimisation only
            if (thread / "comm").read_text().startswith("gloo"):
                os.sched_setscheduler(int(thread.name), os.SCHED_BATCH, os.sched_param(0))


def select_device(backend: str, local_rank: int, local_ranks: int) -> None:
    """With nccl, give this process a GPU of its own, or a shared one where there are fewer GPUs than ranks."""
    if backend == "nccl":
        gpus = torch.cuda.device_count()
        torch.cuda.set_device(local_rank % gpus)
        if local_ranks > gpus:
            share_gpu(local_rank)


def share_gpu(local_rank: int) -> None:
    """Set NCCL's variables so that this rank may share its GPU with others; a variable that is set already stays.

    NCCL refuses two ranks on one GPU of one host, so each rank says that it is a host of its own, and NCCL joins them
    by sockets. Their kernels wait for each other, so all of them must fit on the GPU at once: one block each. Must be
    called before the rank's first message. Source: the environment variables in NCCL's user guide,
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    """
    own_host = {"NCCL_HOSTID": f"{socket.gethostname()}-rank{local_rank}", "NCCL_NET": "Socket"}
    for name, value in (own_host | {"NCCL_MAX_CTAS": "1", "NCCL_NVLS_ENABLE": "0"}).items():
        os.environ.setdefault(name, value)


def own_device(group: dist.ProcessGroup | None = None) -> torch.device:
    """Return the GPU of this process if nccl is a backend of the group and a GPU is there, else the CPU.

    None is the default group. A group with both gloo and nccl works on GPUs. The GPU is the one that the group was made
    for (``device_id``) or that is the current device; where neither was chosen, that of ``LOCAL_RANK``, or of the rank
    where each host has as many ranks as GPUs, as torch takes it.
    """

    if not dist.is_initialized() or backends(group).get("cuda") != "nccl" or not torch.cuda.is_available():
        return torch.device("cpu")
    whole_group = group or dist.group.WORLD
    assert whole_group is not None
    if whole_group.bound_device_id is not None:
        return whole_group.bound_device_id
    local_rank = int(os.environ.get("LOCAL_RANK", dist.get_rank()))
    return torch.device("cuda", torch.cuda.current_device() or local_rank % torch.cuda.device_count())


def use_own_device() -> None:
    """Make the default group's GPU, if it has one, the current device of this process."""
    device = own_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)


def backends(group: dist.ProcessGroup | None = None) -> dict[str, str]:
    """Return the backend of a group for each type of device; None is the default group."""
    pairs = (pair.partition(":") for pair in dist.get_backend_config(group).split(","))
    return {device: backend for device, _, backend in pairs}


def loopback() -> str:
    """Return the name of the network interface that only this machine reaches."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")
