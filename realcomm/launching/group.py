"""Join the default group of torch.distributed, and find the device that it works on."""

import os
import socket
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from realcomm.launching.hangs import MARGIN_S, oldest_unfinished, watch_by


def join_by_file(file: Path, backend: str, rank: int, world_size: int, timeout: float, interface: str) -> None:
    """Join the group of all ranks that use the same ``file``, over the network ``interface``.

    ``timeout`` is the group's timeout for each operation, in seconds.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
    store = dist.FileStore(str(file), world_size)  # type: ignore[attr-defined]
    _join(backend, store, rank, world_size, rank, timedelta(seconds=timeout))


def join_by_environment(
    backend: str, local_rank: int, timeout: timedelta, attempt: int = 0, store: Store | None = None
) -> None:
    """Join the group that torchrun's environment variables describe.

    ``store`` is a rendezvous store that all ranks have opened. Default: the store at ``MASTER_ADDR`` and
    ``MASTER_PORT``. ``attempt`` counts restarts and must be equal on all ranks. It becomes a prefix of the store's
    keys, because the store may still contain the addresses of ranks from before a restart.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if store is None:
        store, rank, world_size = next(rendezvous("env://", timeout=timeout))
    prefix_store = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
    _join(backend, prefix_store, rank, world_size, local_rank, timeout)


def _join(backend: str, store: Store, rank: int, world_size: int, local_rank: int, timeout: timedelta) -> None:
    if backend == "nccl":
        select_gpu(store, rank, world_size, local_rank)
        watch_by(oldest_unfinished)
        timeout += timedelta(seconds=MARGIN_S)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)
    deprioritize_gloo()


def leave() -> None:
    """Destroy the default group if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def deprioritize_gloo() -> None:
    """Schedule gloo's event loops as ``SCHED_BATCH`` threads, which do not preempt a running thread.

    Their share of the cores does not change. Under the default policy, an event loop that wakes up may preempt the
    rank's thread while this thread sends and holds the connection's lock. The event loop then spins on the lock
    (``Pair::handleEvents``) until its time slice ends. With 2 ranks on 2 cores, half of all steps of 4 KiB took up to 4
    ms instead of 0.1 ms.
    """
    if not hasattr(os, "SCHED_BATCH"):  # only Linux has it
        return
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # only an optimization: the thread has ended or must not be changed
            if (thread / "comm").read_text().startswith("gloo"):
                os.sched_setscheduler(int(thread.name), os.SCHED_BATCH, os.sched_param(0))


def select_gpu(store: Store, rank: int, world_size: int, local_rank: int) -> None:
    """Make one of the visible GPUs the current device, and configure NCCL if several ranks share a GPU.

    A rank may see all GPUs of its host or only its own. So ranks compare GPU UUIDs through ``store``.
    """
    number = local_rank % torch.cuda.device_count()
    torch.cuda.set_device(number)
    store.set(f"GPU of rank {rank}", str(torch.cuda.get_device_properties(number).uuid))
    gpus = store.multi_get([f"GPU of rank {other}" for other in range(world_size)])
    if len(set(gpus)) < world_size:
        share_gpu(rank)


def share_gpu(rank: int) -> None:
    """Set NCCL's environment variables so that ranks can share a GPU. Variables that are already set keep their values.

    NCCL rejects two ranks of one host on the same GPU. So each rank gets a separate host ID, and NCCL connects the
    ranks by sockets. Kernels of different ranks wait for each other, so all of them must fit on the GPU at once.
    Therefore each kernel gets only one block. Call this before the first message. Source: NCCL's environment variables,
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    """
    own_host = {"NCCL_HOSTID": f"{socket.gethostname()}-rank{rank}", "NCCL_NET": "Socket"}
    for name, value in (own_host | {"NCCL_MAX_CTAS": "1", "NCCL_NVLS_ENABLE": "0"}).items():
        os.environ.setdefault(name, value)


def group_or_default(group: dist.ProcessGroup | None = None) -> dist.ProcessGroup:
    """Return ``group``, or the default group if it is None. The default group must exist."""
    chosen = group or dist.group.WORLD
    assert chosen is not None
    return chosen


def own_device(group: dist.ProcessGroup | None = None) -> torch.device:
    """Return this process's GPU if the group has an nccl backend and a GPU is available, else the CPU.

    If ``group`` is None, use the default group. A group with both gloo and nccl uses GPUs. The GPU is the ``device_id``
    of the group if it has one, otherwise the current device if it is not GPU 0, otherwise GPU number ``LOCAL_RANK`` (or
    the rank, if unset) modulo the number of GPUs.
    """

    if not dist.is_initialized() or backends(group).get("cuda") != "nccl" or not torch.cuda.is_available():
        return torch.device("cpu")
    if (bound := group_or_default(group).bound_device_id) is not None:
        return bound
    local_rank = int(os.environ.get("LOCAL_RANK", dist.get_rank()))
    return torch.device("cuda", torch.cuda.current_device() or local_rank % torch.cuda.device_count())


def use_own_device() -> torch.device:
    """Return this process's device. If it is a GPU, also make it the current device."""
    device = own_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def backends(group: dist.ProcessGroup | None = None) -> dict[str, str]:
    """Return the backend of each device type, for ``group`` or the default group."""
    pairs = (pair.partition(":") for pair in dist.get_backend_config(group).split(","))
    return {device: backend for device, _, backend in pairs}


def reach_other_hosts() -> None:
    """Set ``GLOO_SOCKET_IFNAME`` if gloo would listen only on the loopback, because the hostname resolves to it.

    Select the interface of the route to ``MASTER_ADDR``. If there is no route or it uses the loopback, select the
    interface of the default route. Do nothing if the variable is already set or neither route exists.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ or _reaches_others(_own_address(socket.gethostname())):
        return
    for address in map(_own_address, (os.environ.get("MASTER_ADDR", ""), ANYWHERE)):
        for name, addresses in psutil.net_if_addrs().items():
            if _reaches_others(address) and address in (each.address for each in addresses):
                os.environ["GLOO_SOCKET_IFNAME"] = name
                return


ANYWHERE = "192.0.2.1"  # an unused address, reached by the default route


def _own_address(host: str) -> str:
    """Return this host's address on the route to ``host``, or "" if there is no route. No packet is sent."""
    with suppress(OSError, UnicodeError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as route:
                route.connect(address)
                return str(route.getsockname()[0])
    return ""


def _reaches_others(address: str) -> bool:
    return bool(address) and not ip_address(address.partition("%")[0]).is_loopback


def loopback() -> str:
    """Return the name of the loopback interface."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")
