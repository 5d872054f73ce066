"""Where the ranks that something else than torchrun has started meet, and which of them are on one host.

They meet in the store of rank 0. What starts ranks without torchrun (PyTorchJob, mpirun) may leave ``LOCAL_WORLD_SIZE``
out, or give the same to all. Two ranks are on one host where they have the same kernel (by its boot id) and the same
network namespace: only there does the loopback lead from one to the other.
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


_AGAIN_S = 0.1  # until a connection is tried again: rank 0 may not have started
_TRY_S = 5.0  # for one connection
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Rendezvous:
    """The store that ``MASTER_ADDR`` and ``MASTER_PORT`` name, with this rank in it."""

    def __init__(self, rank: int, world_size: int, timeout: float) -> None:
        """Open the store. Raise InputError where it cannot be reached in ``timeout`` seconds, or its port is taken."""
        self.rank, self.world_size, self.timeout = rank, world_size, timeout
        self._began = time.monotonic()
        self.address, self.port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        if not self.address or not self.port.isdecimal():
            name, value = ("MASTER_PORT", self.port) if self.address else ("MASTER_ADDR", "")
            raise refused(name, value, "give the address of rank 0 and a free port there")
        set_status(f"waiting for rank 0 at {self.address}, port {self.port}")
        if rank == 0:
            self.store = self._open("localhost", is_master=True)
            self._reach()
        else:
            self._reach()
            self.store = self._open(self.address, is_master=False)

    def _open(self, address: str, *, is_master: bool) -> "Store":
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        left = timedelta(seconds=self._left())
        try:
            return TCPStore(
                address, int(self.port), self.world_size, is_master, left, wait_for_workers=False, multi_tenant=True
            )
        except RuntimeError as error:
            said = str(error).partition("\n")[0]
            ways_out = f"ranks cannot meet there ({said}); give a port that is free on the host of rank 0"
            raise refused("MASTER_PORT", self.port, ways_out) from error

    def _reach(self) -> None:
        """Wait until rank 0 answers at the address."""
        while True:
            try:
                socket.create_connection((self.address, int(self.port)), min(_TRY_S, self._left())).close()
                return
            except (OSError, UnicodeError) as error:  # what is no name of a host may not even be asked for
                if self._left() <= _AGAIN_S:
                    ways_out = (
                        f"nothing answers there at port {self.port} (MASTER_PORT) within {self.timeout:g} s ({error}); "
                        "give the address of the host of rank 0, which must run"
                    )
                    raise refused("MASTER_ADDR", self.address, ways_out) from error
            time.sleep(_AGAIN_S)

    def _left(self) -> float:
        return max(_AGAIN_S, self._began + self.timeout - time.monotonic())

    def exchange(self, subject: str, text: str, check: Callable[[str], None]) -> list[str]:
        """Post a text, and return those of all ranks once they are there; ``check`` each as soon as it is.

        Raise InputError where another process has this rank too, and TimedOut, which names the ranks that are missing.
        """
        if self.store.add(f"{subject} posts {self.rank}", 1) > 1:
            raise InputError(f"RANK is {self.rank} for two processes; give each another one")
        self.store.set(_key(subject, self.rank), text)
        found = []
        for rank in range(self.world_size):
            set_status(f"waiting for rank {rank} to come")
            try:
                self.store.wait([_key(subject, rank)], timedelta(seconds=self._left()))
            except RuntimeError as error:
                raise TimedOut(self._describe_missing(subject)) from error
            found.append(self.store.get(_key(subject, rank)).decode())
            check(found[-1])
        return found

    def _describe_missing(self, subject: str) -> str:
        missing = [rank for rank in range(self.world_size) if not self.store.check([_key(subject, rank)])]
        named = ", ".join(map(str, missing))
        took = time.monotonic() - self._began
        return (
            f"the group is not complete after {took:.3g} s: rank {named} of {self.world_size} has not come to "
            f"{self.address}, port {self.port}; rank {self.rank} waits there"
        )


def _key(subject: str, rank: int) -> str:
    return f"{subject} of rank {rank}"


@dataclass(frozen=True)
class Place:
    """Where a rank is, and what its environment says of that."""

    host: str
    boot: str  # of the kernel; empty where the system tells none
    network: int  # the namespace
    world_size: int
    local_world_size: str | None

    @classmethod
    def own(cls) -> "Place":
        """Return the place of this process."""
        boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
        network = OWN_NETWORK.stat().st_ino if OWN_NETWORK.exists() else 0
        world_size, local = int(os.environ["WORLD_SIZE"]), os.environ.get("LOCAL_WORLD_SIZE")
        return cls(socket.gethostname(), boot, network, world_size, local)

    def is_at(self, other: "Place") -> bool:
        """Return whether the loopback leads from one to the other.

        >>> Place("a", "1f", 7, 2, None).is_at(Place("b", "1f", 7, 2, None))
        True
        """
        kernels = (self.boot, other.boot) if self.boot and other.boot else (self.host, other.host)
        return kernels[0] == kernels[1] and self.network == other.network


@dataclass(frozen=True)
class LocalRanks:
    """The ranks on this process's host: how many there are, which of them this is, and whether they are all."""

    count: int
    own: int
    are_all: bool


def told_by_torchrun() -> LocalRanks | None:
    """Return what torchrun says; None where this process was started by something else.

    >>> told_by_torchrun()
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ or "LOCAL_WORLD_SIZE" not in os.environ:
        return None
    count = int(os.environ["LOCAL_WORLD_SIZE"])
    return LocalRanks(count, int(os.environ.get("LOCAL_RANK", "0")), count == int(os.environ["WORLD_SIZE"]))


def find_local_ranks(rendezvous: "Rendezvous") -> LocalRanks:
    """Post this rank's place, read those of all, and return which are here. Raise InputError where they contradict."""
    own = Place.own()
    texts = rendezvous.exchange("place", json.dumps(asdict(own)), lambda text: _check_world(own, json.loads(text)))
    return local_ranks([Place(**json.loads(text)) for text in texts], rendezvous.rank)


def _check_world(own: Place, found: dict[str, int]) -> None:
    if found["world_size"] != own.world_size:
        raise InputError(
            f"WORLD_SIZE is {own.world_size} for this rank and {found['world_size']} for another; give all the same"
        )


def local_ranks(places: list[Place], rank: int) -> LocalRanks:
    """Return the ranks on the host of ``rank`` from the places of all. Raise InputError where they contradict.

    >>> local_ranks([Place("a", "1f", 7, 3, None), Place("b", "2c", 7, 3, None), Place("a", "1f", 7, 3, None)], 2)
    LocalRanks(count=2, own=1, are_all=False)
    """
    _check_all_or_none(places)
    for one, place in enumerate(places):
        _check_said(places, one, place)
    here = _ranks_at(places, places[rank])
    said = places[rank].local_world_size
    count = len(here) if said is None else int(said)  # fewer where several launchers work on this host
    own = int(os.environ.get("LOCAL_RANK", here.index(rank)))
    return LocalRanks(count, own, len(here) == len(places))


def _check_all_or_none(places: list[Place]) -> None:
    """Raise InputError where some ranks say how many are on their host and others do not."""
    silent = [rank for rank, place in enumerate(places) if place.local_world_size is None]
    saying = [rank for rank, place in enumerate(places) if place.local_world_size is not None]
    if silent and saying:
        raise InputError(
            f"LOCAL_WORLD_SIZE is set for rank {saying[0]} and not for rank {silent[0]}; set it for all ranks or for "
            "none"
        )


def _check_said(places: list[Place], rank: int, place: Place) -> None:
    """Raise InputError for a rank that counts more ranks on its host than are there."""
    said, here = place.local_world_size, _ranks_at(places, place)
    if said is None or (said.isdecimal() and 1 <= int(said) <= len(here)):
        return
    others = ", ".join(str(other) for other in here if other != rank)
    raise InputError(
        f"rank {rank} says LOCAL_WORLD_SIZE={said}, but on its host {place.host} there is "
        + (f"besides it rank {others} only" if others else "no other rank")
        + f"; give it {len(here)}, or leave it out for all ranks"
    )


def _ranks_at(places: list[Place], place: Place) -> list[int]:
    return [rank for rank, other in enumerate(places) if other.is_at(place)]
