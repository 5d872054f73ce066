"""Links whose bandwidth changes while messages are on them."""

from collections.abc import Callable

from simcomm.compiled.kernel.fair_levels import settle
from simcomm.compiled.kernel.fifo import go_if_first, halt
from simcomm.compiled.kernel.flow_groups import retell, share_links, touch
from simcomm.compiled.kernel.jit import entry, inner, sources
from simcomm.compiled.kernel.world import World
from simcomm.compiled.routes import Ints


@inner
def _set(w: World, link: int, alone: float, shared: float, over: Ints) -> None:
    """The link has this bandwidth, and routes over it know what is left for a message alone."""
    w.links[link].alone = alone
    w.links[link].shared = shared
    for k in range(len(over)):
        first, least = w.routes[over[k]].first_hop, alone
        for at in range(first, first + w.routes[over[k]].hops):
            least = min(least, w.links[w.hops[at].link].alone)
        w.routes[over[k]].alone_rate = least


def _entry(version: int) -> Callable[[World, int, float, float, Ints, int], bool]:
    @entry
    def alter(w: World, link: int, alone: float, shared: float, over: Ints, patience: int) -> bool:
        """From now on the link, which the routes ``over`` cross, has so many bytes/s for one flow and for several."""
        now = w.clock[0]
        if len(w.turn) > 0:
            first = w.links[link].front // (len(w.chain) // len(w.flows))
            if first >= 0:
                halt(w, first, now)
            _set(w, link, alone, shared, over)
            if first >= 0:
                go_if_first(w, first, now)
            return version >= 0
        if w.links[link].solo >= 0:
            share_links(w, w.links[link].solo, now)
        _set(w, link, alone, shared, over)
        touch(w, link)
        settle(w, now, patience)
        retell(w)
        return version >= 0

    return alter


alter = _entry(sources())
