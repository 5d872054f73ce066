"""Export one run for the player: all its messages, or a summary over time if the run is large.

The summary contains the mean and the maximum over ranks, because a mean would hide a single rank with a degraded link.
Each column of numbers is base64 text: its little-endian bytes, grouped by significance and compressed with zlib.
"""

import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.records.columns import Floats, Ints
from collectives.records.limits import RunLimits, find_limits
from collectives.records.link_loads import LinkLoads, LinkRoutes, link_loads
from collectives.records.messages import Messages
from collectives.records.trace import Trace
from collectives.records.waits import critical_path
from viz.player.buffers import Buffers, follow_buffers

TICKS = 1 << 30  # ticks per run
TYPES = ("u1", "u2", "i4", "f8")  # types that columns.js reads


def pack(values: npt.ArrayLike) -> dict[str, Any]:
    """Return a column of numbers as columns.js reads it: its type, its length, and its data as base64 text.

    >>> from base64 import b64decode
    >>> column = pack([1, 2, 300])
    >>> column["type"], column["length"], zlib.decompress(b64decode(column["text"])).hex()
    ('u2', 3, '01022c000001')
    """
    column = np.ascontiguousarray(values)
    kind = _smallest(column)
    column = column.astype(np.dtype(kind).newbyteorder("<"))
    planes = column.view(np.uint8).reshape(column.size, -1).T.tobytes() if column.size else b""
    return {"type": kind, "length": int(column.size), "text": b64encode(zlib.compress(planes, 6)).decode()}


def ticks(seconds: npt.NDArray[np.float64], elapsed: float) -> npt.NDArray[np.int64]:
    """Return times as integers, from 0 at the start of a run to 2**30 at its end.

    >>> ticks(np.array([0.0, 0.5]), 1.0).tolist()
    [0, 536870912]
    """
    return np.rint(np.clip(seconds / elapsed, 0.0, 1.0) * TICKS).astype(np.int64)


def _smallest(column: npt.NDArray[Any]) -> str:
    if column.dtype.kind == "f":
        return "f8"
    low, high = (int(column.min()), int(column.max())) if column.size else (0, 0)
    if low < 0 or high >= 1 << 16:
        return "i4" if low >= -(1 << 31) and high < 1 << 31 else "f8"
    return "u1" if high < 1 << 8 else "u2"


def find_depths(messages: Messages) -> Ints:
    """Return the depth of each message: the length of the longest chain of messages that precede it.

    A message precedes another one if a rank sends or receives it in an earlier step of the same channel. Times do not
    matter, because messages of a real run can overtake each other. Messages that wait for each other in a cycle get
    depth 0.
    """
    sent, received, following = _program_steps(messages)
    steps, number = len(following), len(messages)
    ends = np.concatenate([sent, received])
    in_step = (np.argsort(ends, kind="stable") % max(number, 1)).tolist()  # the messages of each program step
    left_in = np.bincount(ends, minlength=steps)
    first = np.append(0, np.cumsum(left_in)).tolist()
    left: list[int] = left_in.tolist()
    before, most = [-1] * steps, [-1] * steps  # depths until a step, and with it
    depths, has_begun = [0] * number, [False] * number  # whether one of its two ranks has begun it
    begun = np.setdiff1d(np.arange(steps), following).tolist()  # first steps of programs, then those that follow
    sender, receiver, follows = sent.tolist(), received.tolist(), following.tolist()
    while begun:
        step = begun.pop()
        for message in in_step[first[step] : first[step + 1]]:
            if not has_begun[message]:
                has_begun[message] = True
                continue
            source, other = sender[message], receiver[message]
            depths[message] = depth = 1 + max(before[source], before[other])
            for end in (source, other):
                most[end] = max(most[end], depth)
                left[end] -= 1
                if not left[end] and follows[end] >= 0:
                    after = follows[end]
                    before[after] = most[after] = most[end]
                    begun.append(after)
    return np.array(depths, np.int64)


def _program_steps(messages: Messages) -> tuple[Ints, Ints, Ints]:
    """Return the step index of each message's send and receive, and the index of each step's successor.

    The successor of a program's last step is -1. Steps are counted per rank and channel, across all collectives. Steps
    without messages are omitted.
    """
    ranks = int(max(messages.src.max(initial=0), messages.dst.max(initial=0))) + 1
    steps = int(max(messages.step.max(initial=0), messages.dst_step.max(initial=0))) + 1
    steps_in_all = steps * (int(messages.collective.max(initial=0)) + 1)
    program, before_it = messages.channel * ranks, messages.collective * steps
    sent = (program + messages.src) * steps_in_all + before_it + messages.step
    received = (program + messages.dst) * steps_in_all + before_it + messages.dst_step
    codes, number = np.unique(np.concatenate([sent, received]), return_inverse=True)
    following = np.arange(1, len(codes) + 1)
    is_last = np.diff(codes // steps_in_all, append=-1) != 0
    following[is_last] = -1
    return number[: len(messages)], number[len(messages) :], following


BINS = 480  # bins of time
ROWS = 2048  # rows of ranks; with more ranks, ranks share rows
SERIES = 48  # links with their use over time
MOST_PACKED = 4_000_000  # characters of all packed messages; above it, only some ranks' messages are listed
MOST_MESSAGES = 200_000  # messages of a page; above it, the page has aggregates and some ranks' messages


def aggregate(trace: Trace, loads: LinkLoads, limits: RunLimits, groups: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Return a summary of a large run by time bins. The page shows the summary in place of single messages."""
    messages = trace.messages
    sizes = [size for _, size in groups]
    group = np.repeat(np.arange(len(groups)), sizes)
    per_rank = np.clip(_coverage(messages.dst, messages, trace.elapsed, trace.world_size), 0.0, 1.0)
    row = np.arange(trace.world_size) * min(trace.world_size, ROWS) // trace.world_size
    most = np.zeros((row[-1] + 1, BINS))
    np.maximum.at(most, row, per_rank)
    busy = np.add.reduceat(per_rank, np.cumsum([0, *sizes[:-1]]), axis=0) / np.array(sizes)[:, None]
    flow = np.bincount(group[messages.src] * len(groups) + group[messages.dst], messages.nbytes, len(groups) ** 2)
    listed = [link for cable in limits.cables[:SERIES] for link in cable.links]
    links = list(dict.fromkeys([*listed, *np.argsort(-loads.use)[:SERIES].tolist()]))[:SERIES]
    edges = np.linspace(0.0, trace.elapsed, BINS + 1)
    reached = np.zeros(BINS, np.int64)  # the latest step with a finished message at the end of each bin
    np.maximum.at(reached, _bin(messages.end, trace.elapsed), messages.step)
    return {
        "listed": list_messages(trace, limits),
        "bins": BINS,
        "rows": int(row[-1]) + 1,
        "most": _share(most),
        "busy": _share(busy),
        "got": _share(_received(messages, group, trace.elapsed, len(groups))),
        "reached": pack(np.maximum.accumulate(reached)),
        "groups": [name for name, _ in groups],
        "sizes": sizes,
        "flow": pack(flow),
        "links": links,
        "series": _share(np.array([loads.mean_share(link, edges[:-1], edges[1:]) for link in links])),
    }


def list_messages(trace: Trace, limits: RunLimits) -> dict[str, Any]:
    """Return the messages as packed columns, which the page unpacks when the user opens a rank.

    If the columns are too large, only the messages of some ranks are included: ranks at bottleneck links, their peers,
    and evenly spaced ranks. ``ranks`` lists these ranks, and is None if all ranks are included.
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
    left = max(1, int(MOST_MESSAGES // max(1.0, count.mean())))
    ranks = list(dict.fromkeys([*bad, *peers, *range(0, size, -(-size // left))]))
    ranks = sorted(ranks[: int(np.searchsorted(np.cumsum(count[ranks]), MOST_MESSAGES, "right"))])
    indices = np.flatnonzero(np.isin(messages.src, ranks) | np.isin(messages.dst, ranks))
    return {"columns": _pack_messages(trace, indices), "ranks": ranks}


def _pack_messages(trace: Trace, which: Ints | slice) -> dict[str, list[Any]]:
    """Return the selected messages as packed columns by name."""
    messages = trace.messages
    columns = {name: getattr(messages, name)[which] for name in ("src", "dst", "chunk", "step")}
    columns |= {"bytes": messages.nbytes[which]}
    columns |= {name: ticks(getattr(messages, name)[which], trace.elapsed) for name in ("begin", "end")}
    return {name: list(pack(column).values()) for name, column in columns.items()}


def _share(values: Floats) -> dict[str, Any]:
    """Pack fractions from 0 to 1 as a column of bytes from 0 to 255."""
    return pack(np.rint(np.clip(values, 0.0, 1.0) * 255).astype(np.int64).ravel())


def _coverage(owner: Ints, messages: Messages, elapsed: float, count: int) -> Floats:
    """Return the mean number of messages in flight for each owner and time bin; shape [count, bins].

    The integral of this number over time is a sum of ramps: one rises from the ``begin`` of each message, one falls
    from its ``end``. A ramp that starts at bin i + f (0 <= f < 1) has the second differences 1 - f at edge i + 1 and f
    at edge i + 2.
    """
    bends = np.zeros((count, BINS + 3))
    for sign, times in ((1.0, messages.begin), (-1.0, messages.end)):
        at = np.clip(times / elapsed * BINS, 0.0, BINS)
        cells = at.astype(np.int64)
        for later, weight in ((1, 1 - (at - cells)), (2, at - cells)):
            bends += np.bincount(owner * (BINS + 3) + cells + later, sign * weight, bends.size).reshape(bends.shape)
    return np.asarray(bends.cumsum(axis=1)[:, 1 : BINS + 1])


def _received(messages: Messages, group: Ints, elapsed: float, count: int) -> Floats:
    """Return the fraction of each group's bytes that have arrived by the end of each bin; shape [groups, bins]."""
    got = np.bincount(group[messages.dst] * BINS + _bin(messages.end, elapsed), messages.nbytes, count * BINS)
    until = got.reshape(count, BINS).cumsum(axis=1)
    return np.asarray(until / np.maximum(until[:, -1:], 1))


def _bin(times: Floats, elapsed: float) -> Ints:
    return np.asarray(np.clip(times / elapsed * BINS, 0, BINS - 1).astype(np.int64))


LISTED = 48  # cables listed in the panel


@dataclass(frozen=True)
class PlayedRun:
    """A trace to replay in the player, with the name to show.

    ``buffers`` has the buffer contents. By default, they are computed from the trace's algorithm if it is known.
    ``lines`` has the line numbers of each message's send and receive in the user's program. By default, they are
    unknown.
    """

    trace: Trace
    name: str
    buffers: Buffers | None = None
    lines: Sequence[tuple[int, int]] = ()


def export_run(run: PlayedRun, groups: Sequence[tuple[str, int]], in_groups: bool = False) -> dict[str, Any]:
    """Return a run as a dict for JSON.

    If the run is large or ``in_groups`` is True, the dict has a summary in place of messages.
    """
    trace = run.trace
    loads = link_loads(trace)
    limits = find_limits(trace, loads)
    failed = dict(trace.failed)
    if trace.failure is not None and not trace.failure.circle:
        failed.setdefault(trace.failure.rank, trace.failure.at)
    figures = {
        "name": run.name,
        "title": trace.title,
        "kind": trace.kind,
        "elapsed": trace.elapsed,
        "complete": trace.is_complete,
        "nbytes": trace.facts.get("nbytes", 0),
        "count": len(trace.messages),
        "sent": float(max(trace.bytes_sent(), default=0)),
        "limits": {
            "kind": limits.kind,
            "heading": limits.heading,
            "sentence": limits.sentence,
            "standing": limits.standing_out,
        },
        "cables": [_cable(cable, loads) for cable in limits.cables[:LISTED]],
        "used": len(limits.cables),
        "use": pack(loads.use),
        "failed": [[rank, time] for rank, time in failed.items()],
        "wrong": trace.failure is not None,
        "unfinished": [[wait.rank, wait.peer, int(wait.sends), wait.step, wait.since] for wait in trace.unfinished],
    }
    if in_groups or len(trace.messages) > MOST_MESSAGES:
        steps = int(trace.messages.step.max()) + 1
        return {**figures, "aggregate": aggregate(trace, loads, limits, groups), "steps": steps}
    return {**figures, **_in_full(run, loads.routes)}


def _cable(cable: Any, loads: LinkLoads) -> dict[str, Any]:
    """Return a duplex link as a dict for JSON, with its busier direction first."""
    links = sorted(cable.links, key=lambda link: -loads.use[link])
    figures = {name: round(getattr(cable, name), 4) for name in ("use", "peak", "busy")}
    return {"name": cable.name, "links": links, "bandwidth": cable.bandwidth, "most": cable.most, **figures}


def _in_full(run: PlayedRun, routes: LinkRoutes) -> dict[str, Any]:
    trace, buffers = run.trace, run.buffers or follow_buffers(run.trace)
    messages, depths = trace.messages, find_depths(trace.messages)
    used, route = np.unique(messages.route, return_inverse=True)
    columns = {
        **{name: getattr(messages, name) for name in ("src", "dst", "chunk", "count", "step")},
        "route": route + 1,  # the first route has no links
        **{"bytes": messages.nbytes, "depth": depths, "reduces": messages.reduces.astype(np.int64)},
        **{name: ticks(getattr(messages, name), trace.elapsed) for name in ("begin", "end")},
    }
    waits = {"src_waits": messages.begin - messages.src_posted, "dst_waits": messages.begin - messages.dst_posted}
    if any((each > 0).any() for each in waits.values()):
        columns |= {name: ticks(np.nan_to_num(each), trace.elapsed) for name, each in waits.items()}
    if run.lines:
        columns |= dict(zip(("src_line", "dst_line"), np.array(run.lines, np.int64).T, strict=True))
    path = critical_path(trace) if trace.kind == "predicted" else []
    full: dict[str, Any] = {
        "columns": {name: pack(column) for name, column in columns.items()},
        "routes": [[], *(routes[number] for number in used.tolist())],
        "steps": int(depths.max(initial=-1)) + 1,
        "critical": [leg.number for leg in path if leg.name == "message"],
    }
    if buffers is not None:
        names = ("start", "wanted", "message", "cell", "value", "carried")
        packed = {name: pack(getattr(buffers, name)) for name in names}
        full["buffers"] = {"chunks": buffers.chunks, "exact": buffers.is_exact, **packed}
    if len(trace.spans):
        spans = {"rank": trace.spans.rank, "name": trace.spans.name, "step": trace.spans.step}
        spans |= {name: ticks(getattr(trace.spans, name), trace.elapsed) for name in ("begin", "end")}
        columns_of_spans = {name: pack(column) for name, column in spans.items()}
        full["spans"] = {"names": list(trace.spans.names), "columns": columns_of_spans}
    return full
