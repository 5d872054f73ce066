"""Give each rank its own c10d state, as in separate processes. Only key-value stores are shared."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist

from virtual.ranks.rank import Rank, RankWait
from virtual.ranks.sites import find_site
from virtual.ranks.world import VirtualWorld

DICTS = (
    "pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "tags_to_pg", "pg_to_tag", "pg_coalesce_state",
    "pg_flight_recorder_hooks",
)  # fmt: skip


def make_state() -> SimpleNamespace:
    """Return the attributes of c10d's ``_world`` for a rank without groups."""
    dicts: dict[str, Any] = {name: {} for name in DICTS}
    return SimpleNamespace(default_pg=None, group_count=0, pg_config_info=[], comms=[], **dicts)


class RankWorlds:
    """Replaces c10d's ``_world``. Reading or writing an attribute uses the calling rank's state."""

    def __init__(self, world: VirtualWorld) -> None:
        self._me = world.me
        self._states = defaultdict[Any, SimpleNamespace](make_state)  # by rank, or thread of the runtime

    def of_caller(self) -> SimpleNamespace:
        return self._states[self._me() or get_ident()]


def _of_caller(name: str) -> Any:
    """Return a property that reads and writes an attribute of the calling rank's state."""

    def write(worlds: RankWorlds, value: Any) -> None:
        setattr(worlds.of_caller(), name, value)

    return property(lambda worlds: getattr(worlds.of_caller(), name), write)


for name in vars(make_state()):
    setattr(RankWorlds, name, _of_caller(name))


Value = bytes | bytearray | str


class VirtualStore(dist.Store):  # type: ignore[misc, name-defined]
    """A key-value store that the ranks of a job share, with the methods of ``torch.distributed.Store``.

    Timeouts are ignored, because they are in real time. A wait for a key that is never set is reported as a hang.
    """

    def __init__(self, world: VirtualWorld, place: Any) -> None:
        super().__init__()
        self.world, self.place, self.job = world, place, world.caller().job
        self.values: dict[str, bytes] = self.job.stores.setdefault(place, {})
        world.stores.append(self)

    def clone(self) -> "VirtualStore":
        return VirtualStore(self.world, self.place)

    def set(self, key: str, value: Value) -> None:
        self.values[key] = value.encode() if isinstance(value, str) else bytes(value)
        self._watch(self.world.watch.key_set, [key])
        self.world.progress += 1
        self.world.poke(*self.job.ranks)

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self.values[key]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self.wait(list(keys))
        return [self.values[key] for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[Value]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def append(self, key: str, value: Value) -> None:
        more = value.encode() if isinstance(value, str) else bytes(value)
        self.set(key, self.values.get(key, b"") + more)

    def has_extended_api(self) -> bool:
        return True

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        if self.check(keys):
            self._watch(self.world.watch.key_seen, keys)
            return
        rank = self.world.caller()
        operation = f"store.wait({', '.join(keys)})"
        self.world.wait_until(rank, lambda: self.check(keys), RankWait(operation, find_site(), tuple(keys)))
        rank.host = max(rank.host, rank.clock)
        self._watch(self.world.watch.key_seen, keys)

    def check(self, keys: str | Sequence[str]) -> bool:
        return all(key in self.values for key in ([keys] if isinstance(keys, str) else keys))

    def add(self, key: str, amount: int) -> int:
        total = int(self.values.get(key, b"0")) + amount
        self._watch(self.world.watch.key_seen, [key])
        self.set(key, str(total))
        return total

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        before = expected.encode() if isinstance(expected, str) else bytes(expected)
        if (key not in self.values and not before) or self.values.get(key) == before:
            self.set(key, desired)
        return self.values.get(key, before)

    def delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self.values)

    def list_keys(self) -> list[str]:
        return list(self.values)

    def set_timeout(self, timeout: timedelta) -> None:
        pass

    def barrier(self, key: str, world_size: int, *args: Any) -> None:
        if self.add(f"{key}/count", 1) == world_size:
            self.set(f"{key}/done", b"1")
        self.wait([f"{key}/done"])

    def _watch(self, event: Callable[[Rank, str], None], keys: Sequence[str]) -> None:
        rank = self.world.me()
        if rank is not None:
            for key in keys:
                event(rank, key)
