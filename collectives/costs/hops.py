"""Which hops a rank program makes: every message with what its time depends on."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from collectives.declaration import Algorithm
from collectives.hop import EXCHANGE, FAN_IN, FAN_OUT, RELAY, Hop
from collectives.proof.completion import completion_order
from collectives.request import Request
from collectives.schedule.build import build_schedule
from collectives.schedule.schedule import Schedule
from collectives.step import Kind

Site = tuple[int, int, int]  # rank, channel, step


@dataclass(frozen=True)
class HopKind:
    """A message of a schedule: between which steps, and how it is timed."""

    src: Site
    dst: Site
    chunk: int
    into: int
    count: int
    pattern: str
    width: int
    together: int  # messages of its fan that are in the receiver's (or sender's) same step, this one included
    reduces: bool
    is_first: bool

    def hop(self, request: Request, world_size: int) -> Hop:
        """Return the hop that this message is in a request; chunks of almost equal length count as equal."""
        chunks = request.algorithm.chunks(world_size)
        nbytes = self.count * -(-request.elements // chunks) * request.itemsize
        return Hop(self.pattern, self.width, self.reduces, nbytes, self.is_first)


def request_hops(request: Request, world_size: int) -> list[Hop]:
    """Return the kinds of hops that a request makes, each once; none where a backend makes them inside.

    >>> from collectives import find_algorithm
    >>> hops = request_hops(Request(find_algorithm("all_reduce/ring"), elements=1024), world_size=2)
    >>> [(hop.pattern, hop.reduces, hop.nbytes, hop.is_first) for hop in hops]
    [('exchange', True, 2048, True), ('exchange', False, 2048, False)]
    """
    if not request.algorithm.has_program:
        return []
    kinds = find_hops(request.algorithm, world_size, request.root)
    return list(dict.fromkeys(kind.hop(request, world_size) for kind in kinds.values()))


@lru_cache(maxsize=32)
def find_hops(algorithm: Algorithm, world_size: int, root: int) -> dict[int, HopKind]:
    """Return the messages of a schedule by the index of their receive.

    A fan is one rank's row of steps that only receive, or only send, in which every later peer was ready before.
    """
    schedule = build_schedule(algorithm, world_size, root)
    depth = _message_depths(schedule)
    sends, receives = _by_step(schedule, Kind.SEND), _by_step(schedule, Kind.RECV, Kind.RECV_REDUCE)
    fan_in = _fans(schedule, receives, sends, depth)
    fan_out = _fans(schedule, sends, receives, depth)
    found = {}
    for site, indices in receives.items():
        for index in indices:
            match = int(schedule.match[index])
            src = _site(schedule, match)
            group_in, group_out = fan_in.get(site, (1, False)), fan_out.get(src, (1, False))
            if sends.get(site) or receives.get(src):
                width, together = max(len(indices), len(sends[src])), 1
                pattern, is_first = EXCHANGE, _before(depth, site) == _before(depth, src) == 0
            elif max(group_in[0], group_out[0]) > 1:
                pattern = FAN_IN if group_in[0] >= group_out[0] else FAN_OUT
                (width, is_first), together = (group_in, len(indices)) if pattern == FAN_IN else (
                    group_out, len(sends[src])
                )  # fmt: skip
            else:
                pattern, width, together = RELAY, 1, 1
                is_first = _before(depth, site) == _before(depth, src) == 0
            reduces = bool(schedule.kind[index] == Kind.RECV_REDUCE)
            chunks = int(schedule.chunk[match]), int(schedule.into[index]), int(schedule.count[index])
            found[index] = HopKind(src, site, *chunks, pattern, width, together, reduces, is_first)
    return found


def _site(schedule: Schedule, index: int) -> Site:
    return int(schedule.rank[index]), int(schedule.channel[index]), int(schedule.step[index])


def _by_step(schedule: Schedule, *kinds: Kind) -> dict[Site, list[int]]:
    """Return the indices of the operations of these kinds, by step."""
    found: defaultdict[Site, list[int]] = defaultdict(list)
    for index, kind in enumerate(schedule.kind.tolist()):
        if kind in kinds:
            found[_site(schedule, index)].append(index)
    return dict(found)


def _message_depths(schedule: Schedule) -> dict[Site, int]:
    """Return for every step how many steps with messages, on any ranks, happen one after the other up to it."""
    peers: defaultdict[Site, list[Site]] = defaultdict(list)
    for index, match in enumerate(schedule.match.tolist()):
        if match >= 0:
            peers[_site(schedule, index)].append(_site(schedule, match))
    depth: dict[Site, int] = {}
    for done in completion_order(schedule):
        site = (done.rank, done.channel, done.step)
        met = peers.get(site, [])
        depth[site] = max(_before(depth, each) for each in (site, *met)) + bool(met)
    return depth


def _before(depth: dict[Site, int], site: Site) -> int:
    """Return the depth of what a channel has done before a step."""
    rank, channel, step = site
    return depth.get((rank, channel, step - 1), 0)


def _fans(
    schedule: Schedule, own: dict[Site, list[int]], other: dict[Site, list[int]], depth: dict[Site, int]
) -> dict[Site, tuple[int, bool]]:
    """Return for the steps that belong to a fan its width, and whether it is its ranks' first communication.

    ``own`` has the operations that a fan is made of, ``other`` those in the other direction.
    """

    def were_ready(site: Site) -> bool:
        peers = (_site(schedule, int(schedule.match[index])) for index in own[site])
        return all(_before(depth, peer) < _before(depth, site) for peer in peers)

    found: dict[Site, tuple[int, bool]] = {}
    for row in _rows(own, other, were_ready):
        width = sum(len(own[site]) for site in row)
        found |= dict.fromkeys(row, (width, _before(depth, row[0]) == 0))
    return found


def _rows(
    own: dict[Site, list[int]], other: dict[Site, list[int]], were_ready: Callable[[Site], bool]
) -> Iterator[list[Site]]:
    """Yield the rows of steps, side by side on one channel, whose messages make one fan."""
    row: list[Site] = []
    for site in sorted(one for one in own if not other.get(one)):
        follows = bool(row) and row[-1] == (site[0], site[1], site[2] - 1)
        if row and not (follows and were_ready(site)):
            yield row
            row = []
        row.append(site)
    if row:
        yield row
