"""Keep c10d's state separate for each rank, as in separate processes."""

from collections import defaultdict
from threading import get_ident
from types import SimpleNamespace
from typing import Any

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
        """Return the state of the calling rank."""
        return self._states[self._me() or get_ident()]


def _of_caller(name: str) -> Any:
    """Return a property that reads and writes an attribute of the calling rank's state.

    ``__getattr__`` would be slower.
    """

    def write(worlds: RankWorlds, value: Any) -> None:
        setattr(worlds.of_caller(), name, value)

    return property(lambda worlds: getattr(worlds.of_caller(), name), write)


for name in vars(make_state()):
    setattr(RankWorlds, name, _of_caller(name))
