"""Connect ranks that were not started by torchrun, and find out which of them share a host.

The ranks connect to the rendezvous store of rank 0. Launchers such as PyTorchJob or mpirun may omit
``LOCAL_WORLD_SIZE`` or set the same value on all hosts, so the variable is not used. Two ranks share a host if they
have the same kernel (boot ID) and network namespace. Only then can they communicate over the loopback.
"""

import json
import os
import socket
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from collectives.errors import InputError
from collectives.variables import refused
from realcomm.launching.failures import TimedOut
from realcomm.launching.namespaces import OWN_NETWORK
from realcomm.launching.status import set_status

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


_AGAIN_S = 0.1  # between attempts to connect, because rank 0 may not have started
_TRY_S = 5.0  # timeout of one attempt
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class LocalRanks:
    """The ranks on this host: their number, this process's index among them, and whether they are the whole group."""

    count: int
    own: int
    are_all: bool


class Rendezvous(NamedTuple):
    """The rendezvous store that all ranks have opened, and the ranks on this host."""

    store: "Store"
    local: LocalRanks


def read_local_ranks() -> LocalRanks | None:
    """Return the local ranks from torchrun's variables, or None if another launcher started this process.

    >>> read_local_ranks()
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or "LOCAL_WORLD_SIZE" not in os.environ:
        return None
    count = int(os.environ["LOCAL_WORLD_SIZE"])
    return LocalRanks(count, int(os.environ.get("LOCAL_RANK", "0")), count == int(os.environ["WORLD_SIZE"]))


def meet(rank: int, world_size: int, timeout: float) -> Rendezvous:
    """Open the rendezvous store at ``MASTER_ADDR`` and ``MASTER_PORT``, and find the ranks on this host.

    Each rank writes its host to the store and reads the hosts of all other ranks. Raise InputError if no store answers
    within ``timeout`` seconds, or if the port is taken. Also raise InputError if two ranks have the same number or
    different world sizes. Raise TimedOut if a rank does not connect in time.
    """
    address = _Address(world_size, timeout)
    store = address.open(is_master=rank == 0)
    kernel = BOOT_ID.read_text().strip() if BOOT_ID.exists() else socket.gethostname()
    network = OWN_NETWORK.stat().st_ino if OWN_NETWORK.exists() else 0
    if store.add(f"posts of rank {rank}", 1) > 1:
        raise InputError(f"RANK is {rank} in two processes; set a different RANK in each process")
    store.set(_key(rank), json.dumps([world_size, kernel, network]))
    hosts = list[object]()
    for other in range(world_size):
        set_status(f"waiting for rank {other} to connect")
        try:
            store.wait([_key(other)], timedelta(seconds=address.left()))
        except RuntimeError as error:
            raise TimedOut(address.describe_missing(store)) from error
        size, *host = json.loads(store.get(_key(other)))
        if size != world_size:
            raise InputError(
                f"WORLD_SIZE is {world_size} on this rank but {size} on another; set the same value on all ranks"
            )
        hosts.append(host)
    here = [number for number, host in enumerate(hosts) if host == hosts[rank]]
    index = int(os.environ.get("LOCAL_RANK", here.index(rank)))
    return Rendezvous(store, LocalRanks(len(here), index, len(here) == world_size))


def _key(rank: int) -> str:
    return f"host of rank {rank}"


class _Address:
    """The address of rank 0's rendezvous store, with a deadline for connecting to it."""

    def __init__(self, world_size: int, timeout: float) -> None:
        self.world_size, self.timeout, self._began = world_size, timeout, time.monotonic()
        self.address, self.port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        if not self.address or not self.port.isdecimal():
            name, value = ("MASTER_PORT", self.port) if self.address else ("MASTER_ADDR", "")
            raise refused(name, value, "set MASTER_ADDR to rank 0's host, and MASTER_PORT to a free port on that host")

    def left(self) -> float:
        return max(_AGAIN_S, self._began + self.timeout - time.monotonic())

    def open(self, is_master: bool) -> "Store":
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        set_status(f"waiting for rank 0 at {self.address}, port {self.port}")
        if not is_master:
            self._reach()
        address = "localhost" if is_master else self.address
        where = address, int(self.port), self.world_size, is_master, timedelta(seconds=self.left())
        try:
            store = TCPStore(*where, wait_for_workers=False, multi_tenant=True)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            advice = f"the store cannot be opened ({reason}); set a free port on the host of rank 0"
            raise refused("MASTER_PORT", self.port, advice) from error
        if is_master:
            self._reach()
        return store

    def _reach(self) -> None:
        while True:
            try:
                socket.create_connection((self.address, int(self.port)), min(_TRY_S, self.left())).close()
                return
            except (OSError, UnicodeError) as error:  # UnicodeError: an invalid hostname
                if self.left() <= _AGAIN_S:
                    advice = (
                        f"no process answers at port {self.port} (MASTER_PORT) within {self.timeout:g} s ({error}); "
                        "set the address of the host of rank 0, and start rank 0"
                    )
                    raise refused("MASTER_ADDR", self.address, advice) from error
            time.sleep(_AGAIN_S)

    def describe_missing(self, store: "Store") -> str:
        missing = [rank for rank in range(self.world_size) if not store.check([_key(rank)])]
        elapsed = time.monotonic() - self._began
        return (
            f"after {elapsed:.3g} s, {len(missing)} of {self.world_size} ranks have not connected to {self.address}, "
            f"port {self.port} (missing: {', '.join(map(str, missing))}); start them, or correct their MASTER_ADDR and "
            "MASTER_PORT"
        )
