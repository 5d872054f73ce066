"""Make c10d create process groups and stores of virtual ranks, whatever backend the program requests."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from importlib import import_module
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.distributed as dist
import torch.distributed.rpc
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d
from torch.distributed.distributed_c10d import Backend, BackendConfig

from collectives.quoting import make_printable
from virtual.c10d.process_group import VirtualProcessGroup
from virtual.c10d.state import RankWorlds, VirtualStore
from virtual.c10d.work import wait_for_future
from virtual.matching.group import VirtualGroup
from virtual.matching.recorder import JobRecorder
from virtual.process.replaced import Replaced
from virtual.ranks.placement import Placement
from virtual.ranks.rank import Rank
from virtual.ranks.world import VirtualWorld

if TYPE_CHECKING:
    from virtual.options import VirtualOptions

NAME = "virtual"  # name of the backend


class GroupMaker:
    """Creates the process groups of all jobs. ``placement`` is None unless the run has GPUs."""

    def __init__(self, world: VirtualWorld, options: "VirtualOptions", placement: Placement | None) -> None:
        self.world, self.placement, self.acts_as = world, placement, options.acts_as
        self.title = make_printable(options.program.title)
        self.usual = "nccl" if options.gpu else "gloo"  # the backend if the program requests none

    def install(self, replaced: Replaced) -> None:
        dist.Backend.register_backend(NAME, self._create, extended_api=True, devices=["cpu", "cuda"])
        replaced.put(c10d, "_world", RankWorlds(self.world))
        torch._C._distributed_c10d._set_thread_isolation_mode(True)  # type: ignore[attr-defined]
        replaced.wrap_for_ranks(torch._C.Future, "wait", partial(wait_for_future, self.world))
        replaced.wrap(c10d, "_new_process_group_helper", self._make)
        replaced.put(c10d, "_get_pg_default_device", lambda group=None: torch.device("cpu"))
        replaced.put(c10d, "rendezvous", self._meet)
        replaced.wrap(device_mesh.DeviceMesh, "__init__", _init_mesh)
        replaced.wrap(c10d, "_store_based_barrier", self._await_others)
        for module in (dist, c10d):
            replaced.put(module, "split_group", self._split)
            replaced.wrap(module, "batch_isend_irecv", self._post_batch)

    def _await_others(self, barrier: Callable[..., None], *args: Any) -> None:
        if not self.world.caller().job.only:  # otherwise only some ranks run
            barrier(*args)

    def _create(self, options: Any, _: Any) -> VirtualProcessGroup:
        rank = self.world.caller()
        ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        key = (rank.meetings, str(options.group_id), ranks)
        groups = rank.job.groups
        if key not in groups:
            job = rank.job
            job.recorder = job.recorder or JobRecorder(self.title, max(*ranks, len(job.ranks) - 1) + 1)
            groups[key] = VirtualGroup(self.world, job.recorder, job, str(options.group_id), ranks)
        return VirtualProcessGroup(groups[key], options.group_rank)

    def _make(
        self,
        original: Callable[..., Any],
        size: int,
        place: int,
        ranks: list[int],
        backend: Any,
        *args: Any,
        device_id: Any = None,
        backend_options: Any = None,
        **named: Any,
    ) -> Any:
        if size < 0:  # asked for MPI, which knows the ranks itself
            raise RuntimeError("Distributed package doesn't have MPI built in: on virtual ranks, use gloo or nccl")
        rank = self.world.caller()
        if rank is rank.job.ranks[0]:
            rank.job.made_groups.append(tuple(ranks) or tuple(range(size)))
        made, own_store = original(size, place, ranks, NAME, *args, **named)
        name = self.usual if backend in (None, "undefined", "") else str(backend)
        if isinstance(made, VirtualProcessGroup):
            c10d._world.pg_map[made] = (name, c10d._world.pg_map[made][1])
            made.group.is_ordered = "nccl" in (self.acts_as or name)
            self._set_backends(made, self.acts_as or (Backend.UNDEFINED if backend is None else str(backend)))
            made.bound_device_id = device_id
            if device_id is not None and self.placement is not None and not self.placement.is_used:
                self.placement.choose(device_id)
        return made, own_store

    def _set_backends(self, made: VirtualProcessGroup, backend: str) -> None:
        if self.placement is None:
            made.backends = dict.fromkeys(("cpu", "cuda"), "nccl" if made.group.is_ordered else "gloo")
        else:
            made.backends = BackendConfig(Backend(backend)).get_device_backend_map()
            made.placement = self.placement

    def _split(
        self,
        parent_pg: Any = None,
        split_ranks: Sequence[Sequence[int]] | None = None,
        timeout: timedelta | None = None,
        pg_options: Any = None,
        group_desc: str | None = None,
        backend: Any = None,
    ) -> Any:
        """Create the group that contains the caller, in place of ``torch.distributed.split_group``."""
        if not split_ranks:
            raise ValueError("split_ranks cannot be None or empty")
        if not c10d._get_default_group().bound_device_id:
            raise RuntimeError("No device associated with the default pg, not safe to split any process groups")
        parent = dist.get_process_group_ranks(parent_pg)
        backend = backend or c10d._world.pg_map[parent_pg or c10d._get_default_group()][0]
        for places in split_ranks:
            ranks = [parent[place] for place in places]
            if dist.get_rank() in ranks:
                return c10d.new_group(
                    ranks, timeout, backend, use_local_synchronization=True, group_desc=group_desc, sort_ranks=False
                )
        return dist.GroupMember.NON_GROUP_MEMBER

    def _meet(self, url: Any, rank: int = -1, world_size: int = -1, **_: Any) -> Iterator[tuple[Any, int, int]]:
        """Yield a new store, the rank and the world size for ``init_process_group``, as torch's ``rendezvous`` does."""
        caller = self.world.caller()
        caller.meetings += 1
        number = int(os.environ.get("RANK", rank)) if rank < 0 else rank
        size = int(os.environ.get("WORLD_SIZE", world_size)) if world_size < 0 else world_size
        caller.world_size = size
        if caller.meetings == 1 and caller.number != number:
            _take_number(caller, number)
        address, port = os.environ.get("MASTER_ADDR", "localhost"), int(os.environ.get("MASTER_PORT", 0))
        store: Any = dist.TCPStore(address, port)  # type: ignore[attr-defined]
        store.place, store.values = caller.meetings, caller.job.stores.setdefault(caller.meetings, {})
        yield store, number, size

    def _post_batch(self, original: Callable[..., Any], operations: Any) -> Any:
        rank = self.world.caller()
        rank.batch = object()
        try:
            return original(operations)
        finally:
            rank.batch = None


def _take_number(rank: Rank, number: int) -> None:
    """Swap the numbers of the rank and of rank ``number``, because a program may start processes in any order."""
    ranks = rank.job.ranks
    if 0 <= rank.number < len(ranks) and 0 <= number < len(ranks) and not ranks[number].meetings:
        other = ranks[number]
        ranks[number], ranks[rank.number] = rank, other
        rank.number, other.number = number, rank.number


def _init_mesh(original: Callable[..., None], self: Any, *args: Any, **named: Any) -> None:
    """Make a mesh's hash different on each rank, so that ranks share no entries of torch's caches."""
    original(self, *args, **named)
    self._thread_id, self._hash = get_ident(), None


NO_RPC = (
    "torch.distributed.rpc cannot run on virtual ranks: its agents use their own sockets, without virtual time; use "
    "messages or collectives of torch.distributed"
)
NO_SOCKETS = (
    "sockets between ranks cannot run on virtual ranks: no other rank runs while one waits in accept(); use messages "
    "or collectives of torch.distributed"
)


def install_stores(world: VirtualWorld, replaced: Replaced) -> None:
    """Replace torch's stores by virtual ones, which ranks share if they pass the same address or file."""

    class TCPStore(VirtualStore):
        def __init__(self, host_name: str, port: int = 0, *args: Any, **named: Any) -> None:
            self.host, self.port = host_name, port
            super().__init__(world, ("tcp", host_name, port))

    class FileStore(VirtualStore):
        def __init__(self, file_name: str, *args: Any, **named: Any) -> None:
            self.path = file_name
            super().__init__(world, ("file", file_name))

    for module in (dist, c10d, import_module("torch.distributed.rendezvous")):  # rendezvous also names a function
        for store in (TCPStore, FileStore):
            if hasattr(module, store.__name__):
                replaced.put(module, store.__name__, store)
    if torch.distributed.rpc.is_available():
        replaced.put(torch.distributed.rpc, "init_rpc", _refuse_rpc)
    replaced.wrap_for_ranks(socket.socket, "accept", _refuse_sockets)


def _refuse_rpc(*args: Any, **named: Any) -> NoReturn:
    raise RuntimeError(NO_RPC)


def _refuse_sockets(*args: Any) -> NoReturn:
    raise RuntimeError(NO_SOCKETS)
