"""Keep c10d's state separate for each rank, as in separate processes."""

from collections import defaultdict
from dataclasses import dataclass, field, fields
from threading import get_ident
from typing import Any

from virtual.ranks.world import VirtualWorld


@dataclass(eq=False)
class RankKnowledge:
    """The attributes of c10d's ``_world`` for one rank."""

    default_pg: Any = None
    group_count: int = 0
    pg_map: dict[Any, Any] = field(default_factory=dict)
    pg_names: dict[Any, Any] = field(default_factory=dict)
    pg_group_ranks: dict[Any, Any] = field(default_factory=dict)
    pg_backend_config: dict[Any, Any] = field(default_factory=dict)
    tags_to_pg: dict[Any, Any] = field(default_factory=dict)
    pg_to_tag: dict[Any, Any] = field(default_factory=dict)
    pg_coalesce_state: dict[Any, Any] = field(default_factory=dict)
    pg_flight_recorder_hooks: dict[Any, Any] = field(default_factory=dict)
    pg_config_info: list[Any] = field(default_factory=list)
    comms: list[Any] = field(default_factory=list)


class RankWorlds:
    """Replaces c10d's ``_world``. Reading or writing an attribute uses the calling rank's state."""

    def __init__(self, world: VirtualWorld) -> None:
        self._me = world.me
        self._known = defaultdict[Any, RankKnowledge](RankKnowledge)  # by rank, or thread of the runtime

    def of_caller(self) -> RankKnowledge:
        """Return the state of the calling rank."""
        return self._known[self._me() or get_ident()]


def _of_caller(name: str) -> Any:
    """Torch reads these attributes often, and ``__getattr__`` is slow."""

    def write(worlds: RankWorlds, value: Any) -> None:
        setattr(worlds.of_caller(), name, value)

    return property(lambda worlds: getattr(worlds.of_caller(), name), write)


for entry in fields(RankKnowledge):
    setattr(RankWorlds, entry.name, _of_caller(entry.name))
