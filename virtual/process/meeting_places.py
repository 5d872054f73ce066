"""Stores that a program makes itself are those of virtual ranks; what needs sockets of its own is refused."""

import socket
from typing import Any, NoReturn

import torch.distributed as dist
import torch.distributed.rpc
from torch.distributed import distributed_c10d as c10d
from torch.distributed import rendezvous  # type: ignore[attr-defined]

from virtual.c10d.store import VirtualStore
from virtual.process.replaced import Replaced
from virtual.ranks.world import VirtualWorld

NO_RPC = (
    "torch.distributed.rpc cannot run on virtual ranks: its agents talk over sockets of their own, in which no virtual "
    "time passes; send and receive, or call collectives"
)
NO_SOCKETS = (
    "sockets between ranks cannot run on virtual ranks, where the others do nothing while one waits in accept(), and "
    "no virtual time passes; send and receive, or call collectives"
)


def install_stores(world: VirtualWorld, replaced: Replaced) -> None:
    """Have stores of a program be virtual ones, one for each address or file and job; refuse RPC and sockets."""

    class TCPStore(VirtualStore):
        """A store at an address, which nobody connects to."""

        def __init__(self, host_name: str, port: int = 0, *args: Any, **named: Any) -> None:
            self.host, self.port = host_name, port
            super().__init__(*_shared(world, ("tcp", host_name, port)))

    class FileStore(VirtualStore):
        """A store in a file, which is not written."""

        def __init__(self, file_name: str, *args: Any, **named: Any) -> None:
            self.path = file_name
            super().__init__(*_shared(world, ("file", file_name)))

    for module in (dist, c10d, rendezvous):
        for store in (TCPStore, FileStore):
            if hasattr(module, store.__name__):
                replaced.put(module, store.__name__, store)
    if torch.distributed.rpc.is_available():
        replaced.put(torch.distributed.rpc, "init_rpc", _refuse_rpc)
    accept = socket.socket.accept

    def refuse_of_ranks(listening: socket.socket) -> tuple[socket.socket, Any]:
        if world.me() is not None:
            raise RuntimeError(NO_SOCKETS)
        return accept(listening)

    replaced.put(socket.socket, "accept", refuse_of_ranks)


def _shared(world: VirtualWorld, place: tuple[object, ...]) -> tuple[Any, ...]:
    """Return what a store of the calling rank is made of. Raise RuntimeError for another thread."""
    rank = world.me()
    if rank is None:
        raise RuntimeError("a store is made by a thread that is no rank's")
    return world, rank.job, rank.job.stores.setdefault(place, {})


def _refuse_rpc(*args: Any, **named: Any) -> NoReturn:
    raise RuntimeError(NO_RPC)
