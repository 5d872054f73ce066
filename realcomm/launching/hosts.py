"""Which ranks are on this process's host: torchrun tells its own; others post where they are, and read it of all.

What starts ranks without torchrun (PyTorchJob, mpirun) may leave ``LOCAL_WORLD_SIZE`` out, or give the same to all. Two
ranks are on one host where they have the same kernel (by its boot id) and the same network namespace: only there does
the loopback lead from one to the other.
"""

import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collectives.errors import InputError
from realcomm.launching.namespaces import OWN_NETWORK

if TYPE_CHECKING:
    from realcomm.launching.rendezvous import Rendezvous

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
