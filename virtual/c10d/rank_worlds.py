"""What c10d knows of groups, for each rank by itself, as each process would."""

from collections import defaultdict
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

from virtual.ranks.world import VirtualWorld


@dataclass(eq=False)
class RankKnowledge:
    """The attributes of c10d's ``_world`` of one rank."""

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
    """Stands for c10d's ``_world``: its attributes are the calling rank's."""

    def __init__(self, world: VirtualWorld) -> None:
        object.__setattr__(self, "_ringlab_world", world)
        object.__setattr__(self, "_ringlab_known", defaultdict(RankKnowledge))  # by rank, or thread of the runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ringlab_known[self._ringlab_world.me() or get_ident()], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ringlab_known[self._ringlab_world.me() or get_ident()], name, value)
