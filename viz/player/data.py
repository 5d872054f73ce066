"""All runs of a page as data: the network once, then each run."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from collectives.errors import InputError
from collectives.records.trace import Trace
from viz.layout.traced_graph import hosts_of, used_nodes
from viz.player.packing import pack
from viz.player.placement import find_groups, place
from viz.player.runs import export_run
from viz.style.captions import check_something_happens

VERSION = 1
MOST_RUNS = 9  # each has a key


@dataclass(frozen=True)
class PlayedRun:
    """A trace to play under a name, with a sentence about what would be without what limits it."""

    trace: Trace
    name: str
    what_if: str = ""


def export(title: str, runs: Sequence[PlayedRun]) -> dict[str, Any]:
    """Return the data of a page. Raises InputError for runs on different networks, and where nothing happens.

    >>> from collectives import Message
    >>> trace = Trace("broadcast/naive", "predicted", 2, 1.0, [Message(0, 1, 0, 0, 8, 0.0, 1.0)])
    >>> export("One message", [PlayedRun(trace, "naive")])["ranks"]
    2
    """
    _check(runs)
    base = max((run.trace for run in runs), key=lambda trace: len(trace.links))
    hosts = hosts_of(base)
    used = set[str]().union(*(used_nodes(run.trace) for run in runs))
    placement, groups = place(base, hosts, used), find_groups(base, hosts)
    names = list(dict.fromkeys([*hosts, *(node for link in base.links for node in (link.src, link.dst))]))
    number = {name: index for index, name in enumerate(names)}
    bandwidth = np.array([link.bandwidth if isfinite(link.bandwidth) else 0.0 for link in base.links])
    return {
        "version": VERSION,
        "title": title,
        "ranks": base.world_size,
        "layout": placement.kind,
        "hidden": placement.hidden,
        "nodes": names,  # those of the ranks first
        "at": [placement.at.get(name) for name in names],
        "links": {
            "src": pack([number[link.src] for link in base.links]),
            "dst": pack([number[link.dst] for link in base.links]),
            "bandwidth": pack(bandwidth),
            "latency": pack(np.array([link.latency for link in base.links], float)),
        },
        "runs": [export_run(run.trace, run.name, run.what_if, groups, placement.in_groups) for run in runs],
    }


def _check(runs: Sequence[PlayedRun]) -> None:
    if not 0 < len(runs) <= MOST_RUNS:
        raise InputError(f"{len(runs)} runs; a player shows from 1 to {MOST_RUNS}")
    first = runs[0].trace
    for run in runs:
        check_something_happens(run.trace)
        if run.trace.world_size != first.world_size:
            ranks = f"{first.world_size} and {run.trace.world_size} ranks"
            raise InputError(f"{first.title} and {run.trace.title} have {ranks}; a player shows runs of one network")
    ends = {tuple((link.src, link.dst) for link in run.trace.links) for run in runs if run.trace.links}
    if len(ends) > 1:
        raise InputError("the runs are on different networks; a player shows runs of one network")
