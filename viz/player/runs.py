"""One run as the data that a page plays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from collectives.records.limits import Limits, critical_messages, find_limits
from collectives.records.link_loads import LinkLoads, link_loads
from collectives.records.link_routes import LinkRoutes
from collectives.records.trace import Trace
from viz.player.aggregate import aggregate
from viz.player.buffers import follow_buffers
from viz.player.depths import find_depths
from viz.player.packing import pack, ticks

MOST_IN_FULL = 200_000  # messages; of more, a page holds aggregates
LISTED = 48  # cables


def export_run(
    trace: Trace, name: str, what_if: str, groups: Sequence[tuple[str, int]], in_groups: bool = False
) -> dict[str, Any]:
    """Return a run as JSON; ``what_if`` is a sentence about what would be without what limits it.

    It holds aggregates where there are too many messages, or so many ranks that they stand only ``in_groups``.
    """
    loads = link_loads(trace)
    limits = find_limits(trace, loads)
    run = {
        **_whole(trace, name),
        "limits": _limits(limits, what_if),
        "cables": [_cable(cable, loads) for cable in limits.cables[:LISTED]],
        "used": len(limits.cables),
        "use": pack(loads.use),
        "failed": _failed(trace),
        "unfinished": [[wait.rank, wait.peer, int(wait.sends), wait.step, wait.since] for wait in trace.unfinished],
    }
    if in_groups or len(trace.messages) > MOST_IN_FULL:
        return {
            **run,
            "aggregate": aggregate(trace, loads, limits, groups),
            "steps": int(trace.messages.step.max()) + 1,
        }
    return {**run, **_in_full(trace, loads.routes)}


def _whole(trace: Trace, name: str) -> dict[str, Any]:
    """Return what is said of the run as a whole."""
    return {
        "name": name,
        "title": trace.title,
        "kind": trace.kind,
        "elapsed": trace.elapsed,
        "complete": trace.is_complete,
        "nbytes": trace.facts.get("nbytes", 0),
        "count": len(trace.messages),
        "sent": float(max(trace.bytes_sent(), default=0)),
    }


def _failed(trace: Trace) -> list[list[float]]:
    """Return the ranks that stop, and when; also those whose program goes wrong."""
    failed = dict(trace.failed)
    if trace.failure is not None:
        failed.setdefault(trace.failure.rank, trace.failure.at)
    return [[rank, time] for rank, time in failed.items()]


def _limits(limits: Limits, what_if: str) -> dict[str, Any]:
    sentence = f"{limits.sentence} {what_if}".strip()
    return {"kind": limits.kind, "heading": limits.heading, "sentence": sentence, "standing": limits.standing_out}


def _cable(cable: Any, loads: LinkLoads) -> dict[str, Any]:
    """Return a cable with its busier link first."""
    links = sorted(cable.links, key=lambda link: -loads.use[link])
    figures = {
        "use": round(cable.use, 4),
        "peak": round(cable.peak, 4),
        "busy": round(cable.busy, 4),
        "most": cable.most,
    }
    return {"name": cable.name, "links": links, "bandwidth": cable.bandwidth, **figures}


def _in_full(trace: Trace, routes: LinkRoutes) -> dict[str, Any]:
    """Return every message and span of a run, and what is in the buffers where that is known."""
    messages, depths = trace.messages, find_depths(trace.messages)
    used, route = np.unique(messages.route, return_inverse=True)
    columns = {
        **{name: getattr(messages, name) for name in ("src", "dst", "chunk", "count", "step")},
        "route": route + 1,  # the first is of no links
        **{"bytes": messages.nbytes, "depth": depths, "reduces": messages.reduces.astype(np.int64)},
        **{name: ticks(getattr(messages, name), trace.elapsed) for name in ("begin", "end")},
    }
    full: dict[str, Any] = {
        "columns": {name: pack(column) for name, column in columns.items()},
        "routes": [[], *(routes[number] for number in used.tolist())],
        "steps": int(depths.max(initial=-1)) + 1,
        "critical": critical_messages(trace) if trace.kind == "predicted" else [],
    }
    buffers = follow_buffers(trace)
    if buffers is not None:
        names = ("start", "wanted", "message", "cell", "value", "carried")
        packed = {name: pack(getattr(buffers, name)) for name in names}
        full["buffers"] = {"chunks": buffers.chunks, "exact": buffers.is_exact, **packed}
    if len(trace.spans):
        full["spans"] = _spans(trace)
    return full


def _spans(trace: Trace) -> dict[str, Any]:
    spans = trace.spans
    columns = {"rank": spans.rank, "name": spans.name, "step": spans.step}
    columns |= {"begin": ticks(spans.begin, trace.elapsed), "end": ticks(spans.end, trace.elapsed)}
    return {"names": list(spans.names), "columns": {name: pack(column) for name, column in columns.items()}}
