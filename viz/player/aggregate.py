"""Runs of more messages than a page should hold: bins of time by ranks, flows between groups, the use of links.

A row keeps its maximum, not only its mean: a bad cable is one rank of many.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.records.limits import Limits
from collectives.records.link_loads import LinkLoads
from collectives.records.messages import Messages
from collectives.records.trace import Trace
from viz.player.packing import pack, ticks

BINS = 480  # of time
MOST_ROWS = 2048  # of ranks: each has its own up to so many
SERIES = 48  # links whose use over time is kept
MOST_PACKED = 4_000_000  # letters of all single messages; of more, only some ranks' are listed ...
MOST_LISTED = 200_000  # ... with so many messages

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def aggregate(trace: Trace, loads: LinkLoads, limits: Limits, groups: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Return what a page shows in place of messages."""
    messages = trace.messages
    sizes = [size for _, size in groups]
    group = np.repeat(np.arange(len(groups)), sizes)
    per_rank = np.clip(_coverage(messages.dst, messages, trace.elapsed, trace.world_size), 0.0, 1.0)
    row = np.arange(trace.world_size) * min(trace.world_size, MOST_ROWS) // trace.world_size
    most = np.zeros((row[-1] + 1, BINS))
    np.maximum.at(most, row, per_rank)
    busy = np.add.reduceat(per_rank, np.cumsum([0, *sizes[:-1]]), axis=0) / np.array(sizes)[:, None]
    flow = np.bincount(group[messages.src] * len(groups) + group[messages.dst], messages.nbytes, len(groups) ** 2)
    links = _kept_links(limits, loads)
    return {
        "listed": list_messages(trace, limits),
        "bins": BINS,
        "rows": int(row[-1]) + 1,
        "most": _share(most),
        "busy": _share(busy),
        "got": _share(_received(messages, group, trace.elapsed, len(groups))),
        "reached": pack(_reached(messages, trace.elapsed)),
        "groups": [name for name, _ in groups],
        "sizes": sizes,
        "flow": pack(flow),
        "links": links,
        "series": _share(np.array([_series(loads, link, trace.elapsed) for link in links])),
    }


def list_messages(trace: Trace, limits: Limits) -> dict[str, Any]:
    """Return single messages as columns, which a page inflates when a rank is opened.

    They are all messages where these are small when they are packed, as those of like ranks; else those of the ranks
    at cables that stand out, of their peers, and of others evenly apart, with the list of these ranks.
    """
    messages = trace.messages
    columns = _pack_messages(trace, slice(None))
    if sum(len(text) for _, _, text in columns.values()) <= MOST_PACKED:
        return {"columns": columns, "ranks": None}
    number = {host: rank for rank, host in enumerate(trace.hosts)}
    links = [trace.links[link] for cable in limits.cables[: limits.standing_out] for link in cable.links]
    bad = [number[node] for link in links for node in (link.src, link.dst) if node in number]
    peers = [*messages.dst[np.isin(messages.src, bad)].tolist(), *messages.src[np.isin(messages.dst, bad)].tolist()]
    size = trace.world_size
    count = np.bincount(messages.src, minlength=size) + np.bincount(messages.dst, minlength=size)
    left = max(1, int(MOST_LISTED // max(1.0, count.mean())))
    ranks = list(dict.fromkeys([*bad, *peers, *range(0, size, -(-size // left))]))
    ranks = sorted(ranks[: int(np.searchsorted(np.cumsum(count[ranks]), MOST_LISTED, "right"))])
    own = np.flatnonzero(np.isin(messages.src, ranks) | np.isin(messages.dst, ranks))
    return {"columns": _pack_messages(trace, own), "ranks": ranks}


def _pack_messages(trace: Trace, which: Ints | slice) -> dict[str, list[Any]]:
    """Return columns as lists of type, length and text: these are not inflated when a page is opened."""
    messages = trace.messages
    columns = {name: getattr(messages, name)[which] for name in ("src", "dst", "chunk", "step")}
    columns |= {"bytes": messages.nbytes[which]}
    columns |= {name: ticks(getattr(messages, name)[which], trace.elapsed) for name in ("begin", "end")}
    return {name: list(pack(column).values()) for name, column in columns.items()}


def _share(values: Floats) -> dict[str, Any]:
    """Return shares from 0 to 1 as bytes from 0 to 255."""
    return pack(np.rint(np.clip(values, 0.0, 1.0) * 255).astype(np.int64).ravel())


def _coverage(owner: Ints, messages: Messages, elapsed: float, count: int) -> Floats:
    """Return the mean number of messages that each owner has under way in each bin; shape [count, bins].

    The seconds of a message up to a time are a ramp that begins at ``begin`` and stops growing at ``end``; at the edges
    of the bins a ramp from bin i + f has the second differences 1 - f and f.
    """
    bends = np.zeros((count, BINS + 3))
    for sign, times in ((1.0, messages.begin), (-1.0, messages.end)):
        at = np.clip(times / elapsed * BINS, 0.0, BINS)
        whole = at.astype(np.int64)
        for later, weight in ((1, 1 - (at - whole)), (2, at - whole)):
            bends += np.bincount(owner * (BINS + 3) + whole + later, sign * weight, bends.size).reshape(bends.shape)
    return np.asarray(bends.cumsum(axis=1)[:, 1 : BINS + 1])


def _received(messages: Messages, group: Ints, elapsed: float, count: int) -> Floats:
    """Return the share of its bytes that each group has received by the end of each bin; shape [groups, bins]."""
    got = np.bincount(group[messages.dst] * BINS + _bin(messages.end, elapsed), messages.nbytes, count * BINS)
    until = got.reshape(count, BINS).cumsum(axis=1)
    return np.asarray(until / np.maximum(until[:, -1:], 1))


def _reached(messages: Messages, elapsed: float) -> Ints:
    """Return the latest step that some message has ended by each bin."""
    reached = np.zeros(BINS, np.int64)
    np.maximum.at(reached, _bin(messages.end, elapsed), messages.step)
    return np.asarray(np.maximum.accumulate(reached))


def _bin(times: Floats, elapsed: float) -> Ints:
    return np.asarray(np.clip(times / elapsed * BINS, 0, BINS - 1).astype(np.int64))


def _kept_links(limits: Limits, loads: LinkLoads) -> list[int]:
    """Return the links whose use over time is kept: those of the cables that are listed first, then the most used."""
    first = [link for cable in limits.cables[:SERIES] for link in cable.links]
    return list(dict.fromkeys([*first, *np.argsort(-loads.use)[:SERIES].tolist()]))[:SERIES]


def _series(loads: LinkLoads, link: int, elapsed: float) -> Floats:
    """Return the use of a link in each bin."""
    edges = np.linspace(0.0, elapsed, BINS + 1)
    return loads.mean_share(link, edges[:-1], edges[1:])
