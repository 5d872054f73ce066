"""Where the ranks that something else than torchrun has started meet before they are a group: the store of rank 0."""

import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from collectives.errors import InputError
from collectives.variables import refused
from realcomm.launching.failures import TimedOut
from realcomm.launching.status import set_status

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_AGAIN_S = 0.1  # until a connection is tried again: rank 0 may not have started
_TRY_S = 5.0  # for one connection


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
