"""The store that the ranks of a job share. While a rank waits for a key, other ranks run."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from virtual.ranks.rank import Rank, RankJob, RankWait
from virtual.ranks.sites import find_site
from virtual.ranks.world import VirtualWorld

Value = bytes | bytearray | str


class VirtualStore(dist.Store):  # type: ignore[misc, name-defined]
    """Stores keys and values that the ranks of a job share."""

    def __init__(self, world: VirtualWorld, job: RankJob, values: dict[str, bytes]) -> None:
        super().__init__()
        self.world, self.job, self.values = world, job, values

    def clone(self) -> "VirtualStore":
        """Return a store with the same keys."""
        return VirtualStore(self.world, self.job, self.values)

    def set(self, key: str, value: Value) -> None:
        """Set a key, and wake ranks that wait for it."""
        self.values[key] = value.encode() if isinstance(value, str) else bytes(value)
        self._watch(self.world.watch.key_set, [key])
        self.world.progress += 1
        self.world.poke_all(self.job.ranks)

    def get(self, key: str) -> bytes:
        """Wait for a key, and return its value."""
        self.wait([key])
        return self.values[key]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Wait for keys, and return their values."""
        self.wait(list(keys))
        return [self.values[key] for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[Value]) -> None:
        """Set several keys."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def append(self, key: str, value: Value) -> None:
        """Append to the value of a key."""
        more = value.encode() if isinstance(value, str) else bytes(value)
        self.set(key, self.values.get(key, b"") + more)

    def has_extended_api(self) -> bool:
        """Return True: the store supports several keys at once."""
        return True

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait for keys. The timeout is ignored: it would be real time."""
        if self.check(keys):
            self._watch(self.world.watch.key_seen, keys)
            return
        rank = self._caller()
        operation = f"store.wait({', '.join(keys)})"
        self.world.wait_until(rank, lambda: self.check(keys), RankWait(operation, find_site(), tuple(keys)))
        rank.host = max(rank.host, rank.clock)
        self._watch(self.world.watch.key_seen, keys)

    def check(self, keys: str | Sequence[str]) -> bool:
        """Return whether all keys exist."""
        return all(key in self.values for key in ([keys] if isinstance(keys, str) else keys))

    def add(self, key: str, amount: int) -> int:
        """Add an amount to the integer stored under a key, initially 0, and return the sum."""
        total = int(self.values.get(key, b"0")) + amount
        self._watch(self.world.watch.key_seen, [key])
        self.set(key, str(total))
        return total

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        """Set a key if its value is ``expected``, or if both are missing. Return its value."""
        before = expected.encode() if isinstance(expected, str) else bytes(expected)
        if (key not in self.values and not before) or self.values.get(key) == before:
            self.set(key, desired)
        return self.values.get(key, before)

    def delete_key(self, key: str) -> bool:
        """Remove a key. Return whether it existed."""
        return self.values.pop(key, None) is not None

    def num_keys(self) -> int:
        """Return the number of keys."""
        return len(self.values)

    def list_keys(self) -> list[str]:
        """Return all keys."""
        return list(self.values)

    def set_timeout(self, timeout: timedelta) -> None:
        """Do nothing: a wait that can never end is reported at once."""

    def barrier(self, key: str, world_size: int, *args: Any) -> None:
        """Wait until ``world_size`` ranks have reached the barrier of this name."""
        if self.add(f"{key}/count", 1) == world_size:
            self.set(f"{key}/done", b"1")
        self.wait([f"{key}/done"])

    def _watch(self, event: Callable[[Rank, str], None], keys: Sequence[str]) -> None:
        rank = self.world.me()
        if rank is not None:
            for key in keys:
                event(rank, key)

    def _caller(self) -> Rank:
        rank = self.world.me()
        if rank is None:
            raise RuntimeError("a thread that does not belong to a rank waits for a store")
        return rank
