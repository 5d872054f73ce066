"""The picture of a topology: machines with what is in them, or hosts and switches, and the bandwidth of each link.

It reads a networkx graph as data: ``bandwidth`` on edges and, where they are there, ``medium`` on edges and ``kind``
and ``tier`` on nodes.
"""

from collections.abc import Mapping, Sequence
from math import inf, log10
from pathlib import Path
from typing import Any

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Text

from collectives.errors import InputError
from collectives.units import format_bandwidth
from viz.file_types import check_file
from viz.layout.geometry import Graph, Point
from viz.layout.rows import kind_of, place_in_rows
from viz.style.colours import GREY, INK, PANE, PAPER
from viz.style.figures import DPI, write_figure

MOST_NODES = 2000
MOST_LABELS = 80
# Okabe and Ito, "Color Universal Design" (2008), as in the other pictures.
FAMILIES = {
    "NVLink-C2C": "#56b4e9",
    "NVLink": "#009e73",
    "PCIe": "#0072b2",
    "memory": "#cc79a7",
    "InfiniBand": "#d55e00",
    "EFA": "#d55e00",
    "ENA": "#d55e00",
    "NIC": "#d55e00",
    "": "#5f6b7d",
}
NAMES = {
    "host": "host", "gpu": "GPU", "pcie": "PCIe switch", "cpu": "CPU", "memory": "its memory", "nic": "NIC",
    "nvswitch": "NVSwitch", "switch": "switch",
}  # fmt: skip
LABEL_BOX = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
FLAT = [(-1.0, -0.4), (1.0, -0.4), (1.0, 0.4), (-1.0, 0.4), (-1.0, -0.4)]  # like a memory module
SYMBOLS: dict[str, Any] = {
    "gpu": "s", "host": "o", "nic": "D", "nvswitch": "H", "cpu": "s", "memory": FLAT, "pcie": "^", "switch": "H",
}  # fmt: skip


def draw_topology(graph: Graph, hosts: Sequence[str], title: str, path: Path | str) -> None:
    """Write a picture of a network as .png, .svg or .pdf; nodes in ``hosts`` carry the number of their rank.

    Raises InputError for another suffix, or more than 2,000 nodes.

    >>> from tempfile import TemporaryDirectory
    >>> import networkx as nx
    >>> graph = nx.DiGraph()
    >>> graph.add_edge("h0", "h1", bandwidth=1e9, latency=1e-6)
    >>> with TemporaryDirectory() as folder:
    ...     draw_topology(graph, ["h0", "h1"], "Two hosts", Path(folder, "two.png"))
    ...     Path(folder, "two.png").stat().st_size > 1000
    True
    """
    path = check_file(path, "a topology")
    if not isinstance(graph, nx.Graph):
        raise InputError(f"graph is {graph!r}; give a networkx graph, for example that of a cluster")
    if len(graph) > MOST_NODES:
        raise InputError(f"{title} has {len(graph)} nodes; a picture shows {MOST_NODES} at most")
    write_figure(topology_figure(graph, hosts, title), path)


def topology_figure(graph: Graph, hosts: Sequence[str], title: str) -> Figure:
    """Return the picture of a network as a figure."""
    positions = place_in_rows(graph, hosts)
    across = [x for x, _ in positions.values()]
    width = min(24.0, max(7.0, 1.6 + 0.42 * (max(across) - min(across) + 1)))
    figure = Figure(figsize=(width, 6.2), dpi=DPI, facecolor=PAPER)
    axes = figure.add_axes((0.02, 0.15, 0.96, 0.73))
    axes.set_axis_off()
    in_rows = all(y == int(y) for _, y in positions.values())
    thin = 0.5 if len(positions) > MOST_LABELS else 1.0
    for a, b in _links(graph):
        bend = 0.0 if not in_rows else -0.25 if kind_of(graph, a, hosts) in ("gpu", "host") else 0.25
        _draw_link(axes, graph.edges[a, b], positions[a], positions[b], bend, thin)
    _draw_nodes(axes, graph, positions, hosts)
    axes.margins(0.06, 0.12)
    figure.text(0.03, 0.945, title, fontsize=13, fontweight="bold", color=INK)
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": GREY}
    figure.legend(handles=_link_key(graph), loc="lower left", ncols=int(width // 3.4), **look)
    symbols = _symbol_key(graph, hosts)
    under_title = (0.018, 0.935)
    figure.legend(handles=symbols, loc="upper left", bbox_to_anchor=under_title, ncols=8, columnspacing=1.2, **look)
    return figure


def _links(graph: Graph) -> list[tuple[str, str]]:
    """Return one direction of each pair of linked nodes."""
    return list({frozenset(edge): edge for edge in graph.edges}.values())


def _draw_link(axes: Axes, data: Mapping[str, Any], a: Point, b: Point, bend: float, thin: float) -> None:
    """Draw a straight line; where that would cross other nodes of the row, an arc, upwards for a positive ``bend``."""
    (x, y), (u, v) = sorted((a, b))
    rad = -bend if y == v and u - x > 1 else 0.0
    line = FancyArrowPatch(
        (x, y), (u, v), arrowstyle="-", connectionstyle=f"arc3,rad={rad}", alpha=0.75, zorder=1, shrinkA=0, shrinkB=0,
        color=_medium_colour(data.get("medium", "")), linewidth=thin * _line_width(data["bandwidth"]),
    )  # fmt: skip
    axes.add_patch(line)


def _line_width(bandwidth: float) -> float:
    """Return the width of a line in points: one more for every factor of four above 1 GB/s."""
    return 1.0 if bandwidth == inf else min(7.0, max(0.6, 1.0 + log10(bandwidth / 1e9) / log10(4)))


def _medium_colour(medium: str) -> str:
    return next((colour for family, colour in FAMILIES.items() if medium.startswith(family)), FAMILIES[""])


def _draw_nodes(axes: Axes, graph: Graph, positions: dict[str, Point], hosts: Sequence[str]) -> None:
    ranks = {host: rank for rank, host in enumerate(hosts)}
    crowded = len(positions) > MOST_LABELS
    for node, (x, y) in positions.items():
        kind, size = kind_of(graph, node, hosts), 7 if crowded else 17
        filled = node in ranks
        axes.plot(
            x,
            y,
            marker=SYMBOLS[kind],
            markersize=size,
            markerfacecolor=INK if filled else PANE,
            markeredgecolor=GREY,
            zorder=2,
        )
        if crowded and not filled:
            continue
        if filled:
            _write(axes, x, y, str(ranks[node]), 4.0 if crowded else 8.5, PAPER)
        else:
            _write(axes, x, y, _short_name(node), 6.5, GREY, aside=16 if y > 0 else -16).set_bbox(LABEL_BOX)


def _write(axes: Axes, x: float, y: float, words: str, size: float, colour: str, aside: float = 0.0) -> Text:
    """Write words at a point, or ``aside`` points above it."""
    return axes.annotate(
        words, (x, y), (0, aside), textcoords="offset points", fontsize=size, color=colour, ha="center", va="center",
        zorder=3, parse_math=False,
    )  # fmt: skip


def _short_name(node: str) -> str:
    """Return ``pcie0`` for ``n0.pcie0``, a part of the first machine; other names as they are."""
    machine, dot, part = node.partition(".")
    return part if dot and machine == "n0" else node


def _link_key(graph: Graph) -> list[Line2D]:
    """Return a line of the key for each sort of link, the widest first, twelve at most."""
    sorts = {(data["bandwidth"], data.get("medium", ""), data["latency"]) for _, _, data in graph.edges(data=True)}
    shown = sorted(sorts, key=lambda sort: -sort[0] if sort[0] < inf else 0)
    return [
        Line2D(
            [], [], color=_medium_colour(medium), linewidth=_line_width(bandwidth), label=_link_label(medium, bandwidth)
        )
        for bandwidth, medium, _ in shown[:12]
    ]


def _symbol_key(graph: Graph, hosts: Sequence[str]) -> list[Line2D]:
    """Return an entry of the key for each symbol that is in the picture."""
    there = {kind_of(graph, node, hosts) for node in graph}
    ranks = {kind_of(graph, host, hosts) for host in hosts}
    return [
        Line2D(
            [], [], linestyle="none", marker=SYMBOLS[kind], markersize=7, markeredgecolor=GREY, label=name,
            markerfacecolor=INK if kind in ranks else PANE,
        )
        for kind, name in NAMES.items()
        if kind in there
    ]  # fmt: skip


def _link_label(medium: str, bandwidth: float) -> str:
    if bandwidth == inf:
        return f"{medium or 'link'}: no limit known"
    gigabytes = f"{bandwidth / 1e9:.4g} GB/s" if bandwidth >= 1e9 else format_bandwidth(bandwidth)
    return f"{medium or 'link'}: {gigabytes} each way"
