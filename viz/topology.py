"""Draw a network topology: machines with their parts, or hosts and switches, and the bandwidth of each link.

The input is a networkx graph. Edges have a ``bandwidth`` and an optional ``medium``. Nodes have an optional ``kind``
and ``tier``. In a large network, equivalent nodes are drawn as one.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf, log2
from textwrap import shorten
from typing import Any

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from collectives.errors import InputError
from collectives.units import count, format_bandwidth
from viz.layout.geometry import Edge, Graph, Line, Point, draw_lines
from viz.layout.groups import Cable, GroupedNetwork, NodeGroup, group_nodes
from viz.layout.layout import memory_edge, place_nodes
from viz.layout.machines import place_in_rows
from viz.style import FAINT, GREY, INK, PANE, PAPER, titled_figure

MOST_NODES = 2000
COLUMN, ROW = 0.46, 0.85  # inches between neighbors in a row, and between rows
WIDE_COLUMN, FULL = 0.8, 6.2  # inches between neighbors if there is room, and of a full row
GROUP_COLUMN, GROUP_ROW = 1.15, 1.05  # between groups
ROUND = (5.6, 3.0)  # size of a circle of few hosts, in inches
MARGIN, HEAD = 0.45, 1.25  # inches next to and above the network
# Okabe and Ito, "Color Universal Design" (2008), as in the other pictures.
FAMILIES = {
    "NVLink-C2C": "#56b4e9", "NVLink": "#009e73", "PCIe": "#0072b2", "memory": "#cc79a7", "InfiniBand": "#d55e00",
    "EFA": "#d55e00", "ENA": "#d55e00", "NIC": "#d55e00", "": "#5f6b7d",
}  # fmt: skip
NAMES = {
    "host": "host", "gpu": "GPU", "pcie": "PCIe switch", "cpu": "CPU", "memory": "its memory", "nic": "NIC",
    "nvswitch": "NVSwitch", "switch": "switch",
}  # fmt: skip
FLAT = [(-1.0, -0.4), (1.0, -0.4), (1.0, 0.4), (-1.0, 0.4), (-1.0, -0.4)]  # like a memory module
SYMBOLS: dict[str, Any] = {
    "gpu": "s", "host": "o", "nic": "D", "nvswitch": "H", "cpu": "s", "memory": FLAT, "pcie": "^", "switch": "H",
}  # fmt: skip
BOXED = ("machine", "memory of this machine")
Sort = tuple[str, str, float]  # a kind of link: label, color, bytes per second
PART = re.compile(r"(n\d+)\.[a-z]+(\d*)")


def topology_figure(graph: Graph, hosts: Sequence[str], title: str) -> Figure:
    """Return a figure of a network. Nodes in ``hosts`` are labeled with their rank.

    Each link's line has the ``gid`` "NODE - NODE". Raise InputError for more than 2,000 nodes.

    >>> import networkx as nx
    >>> graph = nx.DiGraph()
    >>> graph.add_edge("h0", "h1", bandwidth=1e9, latency=1e-6)
    >>> topology_figure(graph, ["h0", "h1"], "Two hosts").axes[0].lines[0].get_gid()
    'h1 - h0'
    """
    if not isinstance(graph, nx.Graph):
        raise InputError(f"graph must be a networkx graph, such as the graph of a cluster, not {graph!r}")
    if len(graph) > MOST_NODES:
        raise InputError(f"{title} has {len(graph)} nodes; a picture shows at most {MOST_NODES}")
    shown = _with_memory(graph, hosts)
    network = group_nodes(shown, hosts)
    at, lines = _arrange(network)
    points = np.concatenate([*lines.values(), np.array(list(at.values()))])
    (left, low), (right, high) = points.min(axis=0), points.max(axis=0)
    sorts = _sorts(network)
    width = max(7.2, right - left + (2 * MARGIN if network.is_whole else GROUP_COLUMN))
    columns = max(1, int(width // 3.2))
    foot = 0.35 + 0.2 * -(-len(sorts) // columns)
    height = max(high - low, 0.3) + 2 * MARGIN + HEAD - 0.4 + foot
    figure = titled_figure(title, _subtitle(graph, hosts, network), width, height)
    axes = figure.add_axes((0.0, foot / height, 1.0, 1 - (foot + HEAD - 0.4) / height))
    middle = (left + right) / 2
    axes.set(xlim=(middle - width / 2, middle + width / 2), ylim=(low - MARGIN, max(high, low + 0.3) + MARGIN))
    axes.set_axis_off()
    if network.is_whole:
        _draw_frames(axes, at, lines)
    for (a, b), line in lines.items():
        words = _cables_words(network.graph.edges[a, b]["cables"])
        color, total = next((color, total) for known, color, total in sorts if known == words)
        thick = _line_width(total, [each for _, _, each in sorts])
        axes.plot(*line.T, color=color, linewidth=thick, alpha=0.8, zorder=1, gid=f"{a} - {b}", label=words)
    _draw_nodes(axes, network, at)
    _draw_keys(figure, network, sorts, (columns, width, height))
    return figure


def _with_memory(graph: Graph, hosts: Sequence[str]) -> Graph:
    """Return the network. If it is a single machine, one node represents its memory, in place of two nodes."""
    ends = memory_edge(graph, tuple(hosts))
    if ends is None:
        return graph
    network: Graph = nx.DiGraph()
    network.add_node("memory", kind="memory of this machine")
    for host in hosts:
        network.add_edge(host, "memory", bandwidth=graph.edges[ends]["bandwidth"], medium="memory")
    return network


def _subtitle(graph: Graph, hosts: Sequence[str], network: GroupedNetwork) -> str:
    """Return text with the numbers of ranks, nodes and links, which also says whether nodes are grouped."""
    ends = memory_edge(graph, tuple(hosts))
    if ends is not None:
        shared = graph.edges[ends].get("shared_bandwidth", inf)
        together = f", {_rate(shared, 'memory')} shared by all ranks" if shared < inf else ""
        return f"{count(len(hosts), 'rank')}: every message crosses the memory{together}"
    cables = len({frozenset(edge) for edge in graph.edges})
    size = f"{count(len(hosts), 'rank')}  ·  {count(len(graph), 'node')}  ·  {count(cables, 'link')}"
    return size if network.is_whole else f"{size}  ·  equivalent nodes are grouped"


def _arrange(network: GroupedNetwork) -> tuple[dict[str, Point], dict[Edge, Line]]:
    """Return the position of each group and the line of each link, in inches with y upwards."""
    graph, hosts = network.graph, network.hosts
    edges = list({frozenset(edge): edge for edge in graph.edges}.values())
    kinds = {name: group.kind for name, group in network.groups.items()}
    if network.is_whole and {"pcie", "cpu", "nvswitch"} & set(kinds.values()):
        rows = place_in_rows(graph, hosts)
        column = min(WIDE_COLUMN, max(COLUMN, FULL / (max(x for x, _ in rows.values()) or 1)))
        at = {node: (column * x, ROW * y) for node, (x, y) in rows.items()}
        up = [node for node in at if kinds[node] not in ("gpu", "host")]
        return at, draw_lines(at, edges, up=up, in_rows=True)
    placed = place_nodes(graph, hosts)
    wide, high = _extent(network, placed.kind, placed.at)
    at = {node: (wide * x, high * (1 - y)) for node, (x, y) in placed.at.items()}
    return at, draw_lines(at, edges, up=[n for n in at if n not in hosts], in_rows=placed.kind == "tiers")


def _extent(network: GroupedNetwork, kind: str, at: Mapping[str, Point]) -> tuple[float, float]:
    """Return the width and height in inches for a layout that ``place_nodes`` calls ``kind``."""
    rows = Counter(y for _, y in at.values())
    widest = max(rows.values())
    if kind == "tiers":
        column, row = (COLUMN, ROW) if network.is_whole else (GROUP_COLUMN, GROUP_ROW)
        return max(5.0, min(13.0, column * widest)), row * max(len(rows) - 1, 1) * (1.4 if widest > 16 else 1.0)
    if kind == "grid":
        planes = 1.0 if widest * len(rows) == len(at) else 1.8  # planes behind each other need room between columns
        return 0.85 * planes / _least_gap(at, 0), 0.75 * planes / _least_gap(at, 1)
    if len(network.hosts) <= 2:
        return 3.6, 1.0
    grown = min(1.9, max(1.0, len(network.hosts) / (28 if network.is_whole else 12)))
    return ROUND[0] * grown, ROUND[1] * grown


def _least_gap(at: Mapping[str, Point], axis: int) -> float:
    """Return the smallest distance between nodes in the same row (axis 0) or in the same column (axis 1)."""
    lines: dict[float, list[float]] = {}
    for place in at.values():
        lines.setdefault(round(place[1 - axis], 9), []).append(place[axis])
    return min((b - a for line in lines.values() for a, b in pairwise(sorted(line))), default=1.0)


def _draw_frames(axes: Axes, at: Mapping[str, Point], lines: Mapping[Edge, Line]) -> None:
    """Draw a labeled frame around each machine if there are several."""
    inside: dict[str, list[Point]] = {}
    for node, place in at.items():
        if match := PART.fullmatch(node):
            inside.setdefault(match[1], []).append(place)
    for (a, b), line in lines.items():
        machines = [match[1] for node in (a, b) if (match := PART.fullmatch(node))]
        if len(machines) == 2 and machines[0] == machines[1]:
            inside[machines[0]] += [(float(x), float(y)) for x, y in line]
    for name, places in inside.items() if len(inside) > 1 else ():
        (x, y), (u, v) = np.min(places, axis=0), np.max(places, axis=0)
        box = FancyBboxPatch(
            (x - 0.14, y - 0.16), u - x + 0.28, v - y + 0.32, boxstyle="round,pad=0,rounding_size=0.1",
            facecolor="none", edgecolor=FAINT, linewidth=1.2, zorder=0,
        )  # fmt: skip
        axes.add_patch(box)
        axes.text(x - 0.1, y - 0.26, name, fontsize=7.5, color=GREY, va="center", ha="left", zorder=0)


def _sorts(network: GroupedNetwork) -> list[Sort]:
    """Return the label, color and total bytes/s of each different kind of link, fastest first."""
    sorts = {}
    for _, _, data in network.graph.edges(data=True):
        cables: Mapping[Cable, int] = data["cables"]
        words = _cables_words(cables)
        total = sum(bandwidth * number for (_, bandwidth), number in cables.items())
        medium = next(iter(cables))[0]
        color = next((color for family, color in FAMILIES.items() if medium.startswith(family)), FAMILIES[""])
        sorts[words] = (words, color, total)
    return sorted(sorts.values(), key=lambda sort: (-sort[2] if sort[2] < inf else 0.0, sort[0]))


def _cables_words(cables: Mapping[Cable, int]) -> str:
    return " and ".join(_cable_words(cable, number) for cable, number in sorted(cables.items()))


def _line_width(bandwidth: float, every: Sequence[float]) -> float:
    """Return a line's width in points: 1.2 for the lowest bandwidth, growing with each doubling up to 5."""
    known = [each for each in every if each < inf]
    if bandwidth == inf or not known or max(known) == min(known):
        return 1.2
    step = min(1.2, 3.8 / log2(max(known) / min(known)))
    return 1.2 + step * log2(bandwidth / min(known))


def _cable_words(cable: Cable, number: int) -> str:
    """Return a label such as ``NVLink 2 x2: 50 GB/s each way`` or ``16 x 10 Gbit/s each way``."""
    medium, bandwidth = cable
    words = f"{_rate(bandwidth, medium)}{' each way' if bandwidth < inf else ''}"
    return f"{medium or 'link'}: {words}" if number == 1 else f"{number} x {f'{medium}: ' if medium else ''}{words}"


def _rate(bandwidth: float, medium: str) -> str:
    """Return a bandwidth as text: in GB/s for a known medium and at least 1 GB/s, else in bit/s."""
    if bandwidth == inf:
        return "no limit known"
    return f"{bandwidth / 1e9:.4g} GB/s" if medium and bandwidth >= 1e9 else format_bandwidth(bandwidth)


def _draw_nodes(axes: Axes, network: GroupedNetwork, at: Mapping[str, Point]) -> None:
    size = 15 if len(at) <= 66 else 11
    middle = np.mean([y for _, y in at.values()])
    for name, (x, y) in at.items():
        group = network.groups[name]
        if len(group.members) > 1 or group.kind in BOXED:
            _draw_box(axes, group, x, y)
            continue
        has_rank = bool(group.ranks)
        axes.plot(
            x, y, marker=SYMBOLS.get(group.kind, "o"), markersize=size, markerfacecolor=INK if has_rank else PANE,
            markeredgecolor=GREY, zorder=2,
        )  # fmt: skip
        words = ", ".join(map(str, group.ranks)) if has_rank else _short_name(name, group.kind)
        fits = len(words) <= (3 if size > 11 else 2) or (has_rank and len(words) <= 3)
        low = -1.5 if group.kind == "pcie" else 0.0
        axes.annotate(
            words if len(words) <= 24 else f"{words[:22]}…", (x, y), (0, low if fits else size), ha="center",
            va="center", textcoords="offset points", fontsize=7.5 if fits and size > 11 else 6, zorder=3,
            color=PAPER if has_rank and fits else GREY, parse_math=False,
            bbox=None if fits else {"facecolor": PAPER, "edgecolor": "none", "pad": 0.5, "alpha": 0.85},
        )  # fmt: skip
        if has_rank and size > 11 and not PART.fullmatch(name):
            above = (y > middle) != axes.yaxis_inverted()
            axes.annotate(
                name, (x, y), (0, size if above else -size), ha="center", va="center", fontsize=6, color=GREY,
                textcoords="offset points", zorder=3, parse_math=False,
            )  # fmt: skip


def _draw_box(axes: Axes, group: NodeGroup, x: float, y: float) -> None:
    machines = {match[1] for member in group.members if (match := PART.fullmatch(member))}
    if group.kind == "machine":
        words = next(iter(machines)) if len(machines) == 1 else f"{len(machines)} machines"
    else:
        name = NAMES.get(group.kind, group.kind)
        plural = f"{name}es" if name.endswith("ch") else f"{name}s"
        words = group.kind if group.kind in BOXED else f"{len(group.members)} {plural}"
    lines = [words, *([f"ranks {ranges(group.ranks)}"] if group.ranks else [])]
    axes.annotate(
        "\n".join(lines), (x, y), ha="center", va="center", fontsize=7.5, zorder=3, parse_math=False, linespacing=1.25,
        color=PAPER if group.ranks else INK,
        bbox={
            "boxstyle": "round,pad=0.45", "facecolor": INK if group.ranks else PANE, "edgecolor": GREY,
            "linewidth": 1.0,
        },
    )  # fmt: skip


def ranges(ranks: Sequence[int]) -> str:
    """Return ranks as text. Instead of more than two ranges, the text has the first rank, the last rank and the count.

    >>> ranges([0, 1, 2, 3]), ranges([0, 2]), ranges([0, 2, 4, 6])
    ('0–3', '0, 2', '0 … 6, 4 in all')
    """
    starts = [rank for rank in ranks if rank - 1 not in ranks]
    ends = [rank for rank in ranks if rank + 1 not in ranks]
    if len(starts) > 2:
        return f"{ranks[0]} … {ranks[-1]}, {len(ranks)} in all"
    return ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in zip(starts, ends, strict=True))


def _short_name(node: str, kind: str) -> str:
    """Return the label of a node: the number of a machine part, or its name. Memory has an empty label."""
    match = PART.fullmatch(node)
    return "" if match and kind == "memory" else match[2] if match else node


def _draw_keys(figure: Figure, network: GroupedNetwork, sorts: Sequence[Sort], size: tuple[int, float, float]) -> None:
    """Draw the legend for symbols above the network and the legend for links below it."""
    columns, width, height = size
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": GREY, "borderaxespad": 0.0}
    rates = [total for _, _, total in sorts]
    links = [
        Line2D([], [], color=color, linewidth=_line_width(total, rates), label=shorten(words, 60, placeholder=" …"))
        for words, color, total in sorts[:12]
    ]
    corner = (0.2 / width, 0.16 / height)
    key = figure.legend(handles=links, loc="lower left", bbox_to_anchor=corner, ncols=columns, **look)
    for text in key.get_texts():
        text.set_parse_math(False)
    has_ranks = {group.kind: bool(group.ranks) for group in network.groups.values() if len(group.members) == 1}
    symbols = [
        Line2D(
            [], [], linestyle="none", marker=SYMBOLS[kind], markersize=7, markeredgecolor=GREY,
            markerfacecolor=INK if has_ranks[kind] else PANE, label=name + " with its rank" * has_ranks[kind],
        )
        for kind, name in NAMES.items()
        if kind in has_ranks
    ]  # fmt: skip
    under_title = (0.14 / width, 1 - 0.78 / height)
    look |= {"columnspacing": 1.2, "handletextpad": 0.3}
    figure.legend(handles=symbols, loc="upper left", bbox_to_anchor=under_title, ncols=8, **look)
