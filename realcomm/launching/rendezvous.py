"""Connect ranks that were not started by torchrun, and find which of them share a host.

They connect to the store of rank 0. Other launchers (PyTorchJob, mpirun) may omit ``LOCAL_WORLD_SIZE`` or set the same
value everywhere. Two ranks share a host if they have the same kernel (boot id) and the same network namespace, because
only then does the loopback connect them.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

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


class Rendezvous:
    """The store at ``MASTER_ADDR`` and ``MASTER_PORT``, opened by this rank."""

    def __init__(self, rank: int, world_size: int, timeout: float) -> None:
        """Open the store. Raise InputError if nothing answers within ``timeout`` seconds, or if the port is taken."""
        self.rank, self.world_size, self.timeout = rank, world_size, timeout
        self._began = time.monotonic()
        self.address, self.port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        if not self.address or not self.port.isdecimal():
            name, value = ("MASTER_PORT", self.port) if self.address else ("MASTER_ADDR", "")
            raise refused(name, value, "set it to the address of rank 0 or a free port there")
        set_status(f"waiting for rank 0 at {self.address}, port {self.port}")
        if rank == 0:
            self.store = self._open("localhost", is_master=True)
            self._reach()
        else:
            self._reach()
            self.store = self._open(self.address, is_master=False)

    def _open(self, address: str, *, is_master: bool) -> "Store":
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        remaining = timedelta(seconds=self._left())
        try:
            return TCPStore(
                address,
                int(self.port),
                self.world_size,
                is_master,
                remaining,
                wait_for_workers=False,
                multi_tenant=True,
            )
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            advice = f"the store cannot be opened ({reason}); set a free port on the host of rank 0"
            raise refused("MASTER_PORT", self.port, advice) from error

    def _reach(self) -> None:
        while True:
            try:
                socket.create_connection((self.address, int(self.port)), min(_TRY_S, self._left())).close()
                return
            except (OSError, UnicodeError) as error:  # UnicodeError: an invalid hostname
                if self._left() <= _AGAIN_S:
                    advice = (
                        f"nothing answers there at port {self.port} (MASTER_PORT) within {self.timeout:g} s ({error}); "
                        "set the address of the host of rank 0, and start rank 0"
                    )
                    raise refused("MASTER_ADDR", self.address, advice) from error
            time.sleep(_AGAIN_S)

    def _left(self) -> float:
        return max(_AGAIN_S, self._began + self.timeout - time.monotonic())

    def exchange(self, subject: str, text: str, check: Callable[[str], None]) -> list[str]:
        """Post a text and return the texts of all ranks. ``check`` is called with each text as soon as it arrives.

        Raise InputError if another process has the same rank, and TimedOut if ranks do not answer in time.
        """
        if self.store.add(f"{subject} posts {self.rank}", 1) > 1:
            raise InputError(f"RANK is {self.rank} in two processes; set a different one in each")
        self.store.set(_key(subject, self.rank), text)
        texts = []
        for rank in range(self.world_size):
            set_status(f"waiting for rank {rank} to connect")
            try:
                self.store.wait([_key(subject, rank)], timedelta(seconds=self._left()))
            except RuntimeError as error:
                raise TimedOut(self._describe_missing(subject)) from error
            texts.append(self.store.get(_key(subject, rank)).decode())
            check(texts[-1])
        return texts

    def _describe_missing(self, subject: str) -> str:
        missing = [rank for rank in range(self.world_size) if not self.store.check([_key(subject, rank)])]
        named = ", ".join(map(str, missing))
        elapsed = time.monotonic() - self._began
        return (
            f"after {elapsed:.3g} s, {len(missing)} of {self.world_size} ranks have not connected to {self.address}, "
            f"port {self.port} (missing: {named}); start them, or correct their MASTER_ADDR and MASTER_PORT"
        )


def _key(subject: str, rank: int) -> str:
    return f"{subject} of rank {rank}"


@dataclass(frozen=True)
class Place:
    """A rank's host, and the numbers of ranks in its environment variables."""

    host: str
    boot: str  # boot id of the kernel; empty if unknown
    network: int  # inode of the network namespace
    world_size: int
    local_world_size: str | None

    @classmethod
    def own(cls) -> "Place":
        """Return the location of this process."""
        boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
        network = OWN_NETWORK.stat().st_ino if OWN_NETWORK.exists() else 0
        world_size, local = int(os.environ["WORLD_SIZE"]), os.environ.get("LOCAL_WORLD_SIZE")
        return cls(socket.gethostname(), boot, network, world_size, local)

    def is_at(self, other: "Place") -> bool:
        """Return whether the loopback connects both locations.

        >>> Place("a", "1f", 7, 2, None).is_at(Place("b", "1f", 7, 2, None))
        True
        """
        kernels = (self.boot, other.boot) if self.boot and other.boot else (self.host, other.host)
        return kernels[0] == kernels[1] and self.network == other.network


@dataclass(frozen=True)
class LocalRanks:
    """The ranks on this host: how many there are, this process's index, and whether they are the whole group."""

    count: int
    own: int
    are_all: bool


def read_local_ranks() -> LocalRanks | None:
    """Return the local ranks from torchrun's variables, or None if another launcher started this process.

    >>> read_local_ranks()
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or "LOCAL_WORLD_SIZE" not in os.environ:
        return None
    count = int(os.environ["LOCAL_WORLD_SIZE"])
    return LocalRanks(count, int(os.environ.get("LOCAL_RANK", "0")), count == int(os.environ["WORLD_SIZE"]))


def find_local_ranks(rendezvous: "Rendezvous") -> LocalRanks:
    """Exchange all ranks' locations; return the ranks on this host. Raise InputError for inconsistent locations."""
    place = Place.own()
    texts = rendezvous.exchange("place", json.dumps(asdict(place)), lambda text: _check_world(place, json.loads(text)))
    return local_ranks([Place(**json.loads(text)) for text in texts], rendezvous.rank)


def _check_world(place: Place, other: dict[str, int]) -> None:
    if other["world_size"] != place.world_size:
        raise InputError(
            f"WORLD_SIZE is {place.world_size} on this rank but {other['world_size']} on another; "
            "set the same value on all ranks"
        )


def local_ranks(places: list[Place], rank: int) -> LocalRanks:
    """Return the ranks on the host of ``rank``. Raise InputError if the locations are inconsistent.

    >>> local_ranks([Place("a", "1f", 7, 3, None), Place("b", "2c", 7, 3, None), Place("a", "1f", 7, 3, None)], 2)
    LocalRanks(count=2, own=1, are_all=False)
    """
    _check_all_or_none(places)
    for number, place in enumerate(places):
        _check_local_size(places, number, place)
    ranks_here = _ranks_at(places, places[rank])
    claimed = places[rank].local_world_size
    # fewer if several launchers started ranks on this host
    count = len(ranks_here) if claimed is None else int(claimed)
    index = int(os.environ.get("LOCAL_RANK", ranks_here.index(rank)))
    return LocalRanks(count, index, len(ranks_here) == len(places))


def _check_all_or_none(places: list[Place]) -> None:
    missing = [rank for rank, place in enumerate(places) if place.local_world_size is None]
    with_it = [rank for rank, place in enumerate(places) if place.local_world_size is not None]
    if missing and with_it:
        raise InputError(
            f"LOCAL_WORLD_SIZE is set on rank {with_it[0]} but not on rank {missing[0]}; set it on all ranks or on none"
        )


def _check_local_size(places: list[Place], rank: int, place: Place) -> None:
    claimed, ranks_here = place.local_world_size, _ranks_at(places, place)
    if claimed is None or (claimed.isdecimal() and 1 <= int(claimed) <= len(ranks_here)):
        return
    raise InputError(
        f"rank {rank} has LOCAL_WORLD_SIZE={claimed}, but its host {place.host} has {len(ranks_here)} of the ranks; "
        f"set it to {len(ranks_here)}, or unset it on all ranks"
    )


def _ranks_at(places: list[Place], place: Place) -> list[int]:
    return [rank for rank, other in enumerate(places) if other.is_at(place)]
