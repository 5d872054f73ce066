"""Links whose bandwidth changes while messages are on them."""

from collections.abc import Callable

from simcomm.compiled.kernel.arrays import Ints
from simcomm.compiled.kernel.fair_levels import restore_fairness
from simcomm.compiled.kernel.fifo import pause, start_if_first
from simcomm.compiled.kernel.flow_groups import mark_dirty, move_to_group, update_finishes
from simcomm.compiled.kernel.jit import entry, inline, source_hash
from simcomm.compiled.kernel.world import World


@inline
def _set_bandwidth(w: World, link: int, alone: float, shared: float, crossing: Ints) -> None:
    """Set a link's bandwidth, and with it what the routes that cross it leave to a message alone."""
    w.links[link].alone = alone
    w.links[link].shared = shared
    for k in range(len(crossing)):
        first, least = w.routes[crossing[k]].first_hop, alone
        for at in range(first, first + w.routes[crossing[k]].hops):
            least = min(least, w.links[w.hops[at].link].alone)
        w.routes[crossing[k]].alone_rate = least


def _entry(version: int) -> Callable[[World, int, float, float, Ints, int], bool]:
    @entry
    def change_bandwidth(
        w: World, link: int, alone: float, shared: float, crossing: Ints, most_corrections: int
    ) -> bool:
        """Give a link so many bytes/s for one flow and for several from now on; ``crossing`` are the routes over it."""
        now = w.clock[0]
        if len(w.arrival_order) > 0:
            first = w.links[link].front // (len(w.chain) // len(w.flows))
            if first >= 0:
                pause(w, first, now)
            _set_bandwidth(w, link, alone, shared, crossing)
            if first >= 0:
                start_if_first(w, first, now)
            return version >= 0
        if w.links[link].solo >= 0:
            move_to_group(w, w.links[link].solo, now)
        _set_bandwidth(w, link, alone, shared, crossing)
        mark_dirty(w, link)
        restore_fairness(w, now, most_corrections)
        update_finishes(w)
        return version >= 0

    return change_bandwidth


change_bandwidth = _entry(source_hash())
