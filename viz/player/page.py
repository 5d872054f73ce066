"""Write the player as one HTML file that contains its scripts, style and data, and makes no requests.

There is no build step: when a page is written, the JavaScript modules in ``web/`` are joined in import order and
minified. The content security policy allows only this script and this style, by their hashes.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

import minify
import networkx as nx
import numpy as np

from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.records.trace import Trace
from viz.captions import check_something_happens
from viz.file_types import check_file
from viz.layout.geometry import Point
from viz.layout.layout import hosts_of, place_nodes, used_nodes
from viz.player.runs import PlayedRun, export_run, pack

MOST_NODES = 300  # maximum ranks that are shown one by one


@dataclass(frozen=True)
class ShownNodes:
    """The layout and positions of the nodes in the player, and the number of idle nodes that the player hides."""

    kind: str  # circle, star, memory, racks, grid, tiers, or groups
    at: dict[str, Point]
    hidden: int = 0

    @property
    def in_groups(self) -> bool:
        """Whether the player shows groups of ranks instead of single ranks."""
        return not self.at


def place(trace: Trace, hosts: Sequence[str], used: set[str]) -> ShownNodes:
    """Return the positions of nodes in the player. If there are many ranks, select the layout of groups instead.

    ``used`` has the nodes on message routes.

    >>> place(Trace("two", "predicted", 2, 1.0), ["h0", "h1"], set()).at
    {'h0': (0.0, 0.5), 'h1': (1.0, 0.5)}
    """
    if len(hosts) > MOST_NODES:
        return ShownNodes("groups", {})
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(hosts)
    graph.add_edges_from((link.src, link.dst) for link in trace.links)
    idle = [node for node in graph if used and node not in used and node not in hosts]
    graph.remove_nodes_from(idle)
    placed = place_nodes(graph, hosts)
    return ShownNodes(placed.kind, {node: (round(x, 4), round(y, 4)) for node, (x, y) in placed.at.items()}, len(idle))


def find_groups(trace: Trace, hosts: Sequence[str], most: int = 64) -> list[tuple[str, int]]:
    """Divide consecutive ranks into groups, and return the name and size of each group.

    The ranks of one machine or switch form a group. If this does not give 2 to ``most`` groups, ranks are divided
    equally.

    >>> find_groups(Trace("four", "predicted", 4, 1.0), ["h0", "h1", "h2", "h3"], most=2)
    [('ranks 0–1', 2), ('ranks 2–3', 2)]
    """
    near: dict[str, set[str]] = {host: set() for host in hosts}
    for link in trace.links:
        if link.src in near:
            near[link.src].add(link.dst)
    of = [
        host.split(".")[0] if ".gpu" in host else "".join(near[host]) if len(near[host]) == 1 else "" for host in hosts
    ]
    starts = [rank for rank in range(len(of)) if rank == 0 or of[rank] != of[rank - 1]]
    if "" in of or not 2 <= len(starts) <= most:
        size = -(-len(hosts) // most)
        starts = list(range(0, len(hosts), size))
        of = [f"ranks {first}–{min(first + size, len(hosts)) - 1}" for first in starts for _ in range(size)]
    ends = [*starts[1:], len(hosts)]
    return [(of[first], end - first) for first, end in zip(starts, ends, strict=True)]


VERSION = 1
MOST_RUNS = 9  # keys 1 to 9 select runs


def export(title: str, runs: Sequence[PlayedRun], teaches: bool = False) -> dict[str, Any]:
    """Return the data of the player's page as a dict for JSON.

    If ``teaches`` is True, the page first shows two runs side by side and says which rank waits. Raise InputError if a
    trace is empty, there are no runs or more than nine, or the runs are on different networks.

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
        "teaches": teaches,
        "ranks": base.world_size,
        "layout": placement.kind,
        "hidden": placement.hidden,
        "nodes": names,  # nodes of ranks come first
        "at": [placement.at.get(name) for name in names],
        "links": {
            **{end: pack([number[getattr(link, end)] for link in base.links]) for end in ("src", "dst")},
            "bandwidth": pack(bandwidth),
            "latency": pack(np.array([link.latency for link in base.links], float)),
        },
        "runs": [export_run(run, groups, placement.in_groups) for run in runs],
    }


def _check(runs: Sequence[PlayedRun]) -> None:
    if not 0 < len(runs) <= MOST_RUNS:
        raise InputError(f"a player shows 1 to {MOST_RUNS} runs, not {len(runs)}")
    first = runs[0].trace
    for run in runs:
        check_something_happens(run.trace)
        if run.trace.world_size != first.world_size:
            ranks = f"{first.world_size} and {run.trace.world_size} ranks"
            raise InputError(f"{first.title} and {run.trace.title} have {ranks}; pass runs on the same network")
    ends = {tuple((link.src, link.dst) for link in run.trace.links) for run in runs if run.trace.links}
    if len(ends) > 1:
        raise InputError("the runs are on different networks; pass runs on the same network")


IMPORT = re.compile(r"^import \{[^}]*\} from '\./([a-z]+)\.js';\n", re.MULTILINE)
# characters of JSON that could end its element or a line of JavaScript
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_player(title: str, runs: Sequence[PlayedRun], path: Path | str, teaches: bool = False) -> None:
    """Write an interactive ``.html`` page that replays one to nine runs on the same network. The page works offline.

    Raise InputError if the suffix is not ``.html``, a trace is empty, there are no runs or more than nine, or the runs
    are on different networks.

    >>> from tempfile import TemporaryDirectory
    >>> from collectives import Message, Trace
    >>> trace = Trace("broadcast/naive", "predicted", 2, 1.0, [Message(0, 1, 0, 0, 8, 0.0, 1.0)])
    >>> with TemporaryDirectory() as folder:
    ...     write_player("One message", [PlayedRun(trace, "naive")], Path(folder, "one.html"))
    ...     Path(folder, "one.html").stat().st_size < 100_000
    True
    """
    path = check_file(path, "a player")
    write_text(path, render_player(title, runs, teaches))


def render_player(title: str, runs: Sequence[PlayedRun], teaches: bool = False) -> str:
    """Return the player's page as HTML. Raise InputError for the same reasons as ``export``."""
    script, style, body = read_sources()
    allowed = f"script-src {_digest(script)}; style-src {_digest(style)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>Ringlab</title>
<style>{style}</style>
</head>
<body>
{body}
<script type="application/json" id="data">{escape(export(title, runs, teaches))}</script>
<script>{script}</script>
</body>
</html>
"""


@cache
def read_sources() -> tuple[str, str, str]:
    """Return the page's minified script, its minified style, and its HTML body."""
    folder = files("viz.player") / "web"
    modules = _in_order("main", {}).values()
    script = "\n".join(IMPORT.sub("", text).replace("\nexport ", "\n") for text in modules)
    style, body = ((folder / name).read_text(encoding="utf-8") for name in ("player.css", "player.html"))
    script = f"'use strict';(() => {{{script}}})();"
    return minify.string("text/javascript", script), minify.string("text/css", style), body.strip()


def _in_order(name: str, texts: dict[str, str]) -> dict[str, str]:
    """Return the sources of a JavaScript module and of all modules that it imports. Imported modules come first."""
    text = (files("viz.player") / "web" / f"{name}.js").read_text(encoding="utf-8")
    for needed in IMPORT.findall(text):
        if needed not in texts:
            _in_order(needed, texts)
    texts[name] = text
    return texts


def escape(data: Mapping[str, Any]) -> str:
    """Return JSON that is safe inside a script element.

    >>> escape({"title": "</script>"})
    '{"title":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda match: ESCAPES[match[0]], text)


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
