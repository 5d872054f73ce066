"""The network in an animation: hosts, switches and links in the background, and moving messages in front."""

from collections import Counter

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import EllipseCollection, LineCollection

from collectives.records.columns import Ints
from collectives.records.trace import Trace
from collectives.units import format_bandwidth
from viz.animation.canvas import POINTS, Canvas
from viz.animation.motion import Motion, length, link_use, phases_at
from viz.layout.geometry import Box, Edge, Layout, natural_order
from viz.style import BUSY, FAINT, GREY, INK, PANE, PAPER, WRONG, chunk_colors, rgb, text_color, use_color

LONGEST_QUEUE = 6  # dots behind each other at one position; more overlap
MOST_DOTS = 256  # in one frame
NUMBERS = 64  # maximum dots with numbers; if there are more, none has a number
SMALLEST_NUMBERED = 6  # pixels of a dot's radius
# parts of a machine: height and roundness as shares of the width; memory is flat, like its modules
SHAPES = {"memory": (0.45, 0.1), "cpu": (1.0, 0.15), "pcie": (0.6, 1.0), "nic": (0.7, 0.15), "nvswitch": (0.7, 1.0)}
LETTERS = {"memory": "RAM", "cpu": "CPU", "pcie": "PCIe", "nic": "NIC", "nvswitch": "NVS"}


class Scene:
    """Draws a trace's network on a canvas, and moves the messages over it frame by frame."""

    def __init__(self, canvas: Canvas, trace: Trace, layout: Layout, motion: Motion, phases: dict[str, str]) -> None:
        self._trace, self._layout, self._motion, self._phases = trace, layout, motion, phases
        self._bandwidths = {(link.src, link.dst): link.bandwidth for link in trace.links}
        self._chunks = np.unique(trace.messages.chunk).tolist()
        self._colors = dict(zip(self._chunks, chunk_colors(len(self._chunks)), strict=True))
        self._lengths = [length(line) for line in motion.lines]
        unrouted = sorted({(message.src, message.dst) for message in trace.messages if not message.route})
        direct = {(layout.hosts[a], layout.hosts[b]): layout.route_line(a, b, ()) for a, b in unrouted}
        self._lines = layout.lines | direct
        self._draw_links(canvas)
        self._add_moving_artists(canvas)
        self._draw_nodes(canvas)
        self._draw_bandwidths(canvas)
        largest, full = motion.nbytes.max(initial=1.0) or 1.0, min(10.5, max(2.5, 0.8 * layout.radius))
        self._radii = full * np.maximum(0.45, np.sqrt(motion.nbytes / largest))  # pixels; the area grows with the bytes

    def _draw_links(self, canvas: Canvas) -> None:
        if box := self._layout.memory:
            canvas.fill(box, PANE, FAINT, round_by=8)
            rates = [link.bandwidth for link in self._trace.links if np.isfinite(link.bandwidth)]
            words = ["memory of this machine", *(format_bandwidth(rate) for rate in rates[:1])]
            canvas.text(box.left + 12, box.bottom + 12, "  ·  ".join(words), 11, GREY)
        thin = 0.7 if len(self._lines) > 400 else 1.6
        canvas.axes.add_collection(
            LineCollection(list(self._lines.values()), colors=FAINT, linewidths=thin, capstyle="round", zorder=1)
        )

    def _add_moving_artists(self, canvas: Canvas) -> None:
        axes = canvas.axes
        self._busy = canvas.add_moving(LineCollection([], capstyle="round"))
        axes.add_collection(self._busy, autolim=False)
        ring = 2 * self._layout.radius + 7
        self._rings = EllipseCollection(
            ring, ring, 0, units="xy", offsets=[self._layout.positions[host] for host in self._layout.hosts],
            transOffset=axes.transData, facecolors="none", linewidths=4,
        )  # fmt: skip
        canvas.add_moving(axes.add_collection(self._rings, autolim=False))
        self._marks = self._add_marks(canvas)
        self._dots = canvas.add_moving(axes.scatter([], [], edgecolors=PAPER, linewidths=1.0))
        self._numbers = [canvas.add_moving(canvas.text(0, 0, "", 9, align="center", bold=True)) for _ in range(NUMBERS)]

    def _add_marks(self, canvas: Canvas) -> list[Artist]:
        """Return a cross on the failed rank, or a dashed line from each deadlocked rank to the one it waits for."""
        if self._trace.failure is None:
            return []
        at = np.array([self._layout.positions[self._layout.hosts[rank]] for rank in self._trace.failure.ranks])
        size = 1.9 * max(self._layout.radius, 5) * POINTS
        if not self._trace.failure.circle:
            cross = canvas.axes.scatter(at[:, 0], at[:, 1], s=size**2, marker="x", color=WRONG, linewidths=4, zorder=9)
            return [canvas.add_moving(cross)]
        to_next = np.roll(at, -1, axis=0) - at
        ends = at + 0.6 * to_next
        legs = list(np.stack([at + 0.2 * to_next, ends], axis=1))
        lines = LineCollection(legs, colors=WRONG, linewidths=2, linestyles="--")
        canvas.axes.add_collection(lines, autolim=False)
        rings = canvas.axes.scatter(ends[:, 0], ends[:, 1], s=30, color=PAPER, edgecolors=WRONG, linewidths=2, zorder=9)
        return [canvas.add_moving(lines), canvas.add_moving(rings)]

    def _draw_nodes(self, canvas: Canvas) -> None:
        positions, radius = self._layout.positions, self._layout.radius
        ranks = {host: rank for rank, host in enumerate(self._layout.hosts)}
        inner = [] if self._layout.memory else [node for node in positions if node not in ranks]
        for node in sorted(inner, key=natural_order):
            self._draw_switch(canvas, node)
        at = np.array([positions[host] for host in ranks])
        canvas.axes.scatter(at[:, 0], at[:, 1], s=(2 * radius * POINTS) ** 2, color=INK, linewidths=0, zorder=3)
        for host, rank in ranks.items():
            if radius >= 6:
                canvas.text(*positions[host], str(rank), min(15, radius), PAPER, "center", bold=True)

    def _draw_switch(self, canvas: Canvas, node: str) -> None:
        (x, y), radius = self._layout.positions[node], self._layout.radii[node]
        kind = self._layout.kinds.get(node)
        tall, round_by = SHAPES.get(kind or "", (1.0, 1.0))
        canvas.fill(Box.around(x, y, radius, tall * radius), PANE, GREY, round_by=round_by * radius)
        if radius >= 6:
            words = canvas.text(x, y, LETTERS.get(kind or "", node), min(11, 0.8 * radius), GREY, "center")
            canvas.fit(words, 2 * radius + 8)

    def _draw_bandwidths(self, canvas: Canvas) -> None:
        """Label the links that ``odd_links`` returns with their bandwidths."""
        if self._layout.memory:
            return
        for (a, b), bandwidth in odd_links(self._trace).items():
            line = self._lines[a, b]
            x, y = line.mean(axis=0)
            aside = np.array([line[1][1] - line[0][1], line[0][0] - line[1][0]]) / (length(line) or 1.0)
            reach = 8 + 30 * abs(aside[0])
            words = canvas.text(x + reach * aside[0], y + 12 * aside[1], format_bandwidth(bandwidth), 10, INK, "center")
            words.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 1, "alpha": 0.85})

    @property
    def numbered(self) -> bool:
        """Whether the largest dots have room for a chunk number."""
        return bool(self._radii.max(initial=0.0) >= SMALLEST_NUMBERED)

    def show(self, frame: int) -> int:
        """Move all artists to their positions in a frame. Return the number of messages in flight."""
        if self._trace.failure is not None:
            for mark in self._marks:
                mark.set_visible(bool(self._motion.times[frame] >= self._trace.failure.at))
        active = self._motion.active(frame)
        self._show_use(active)
        now, clear = phases_at(self._trace, float(self._motion.times[frame])), (0.0, 0.0, 0.0, 0.0)
        ranks = range(self._trace.world_size)
        self._rings.set_edgecolor([(*rgb(self._phases[now[r]]), 1.0) if r in now else clear for r in ranks])
        shown = active if len(active) <= MOST_DOTS else active[np.linspace(0, len(active) - 1, MOST_DOTS).astype(int)]
        self._show_dots(shown, frame)
        return len(active)

    def _show_use(self, active: Ints) -> None:
        use = link_use(self._motion, active, self._bandwidths)
        hosts = self._layout.hosts
        for index in active:
            if not self._motion.edges[self._motion.line[index]]:
                use[hosts[self._motion.src[index]], hosts[self._motion.dst[index]]] = 0.0
        measured = {edge for edge in use if np.isfinite(self._bandwidths.get(edge, np.inf))}
        edges = [edge for edge in use if edge in self._lines]
        self._busy.set_segments([self._lines[edge] for edge in edges])
        self._busy.set_color([use_color(max(use[edge], 0.25)) if edge in measured else rgb(BUSY) for edge in edges])
        inside_memory = {edge for edge in edges if self._layout.memory and not {*edge} & {*hosts}}
        scale = min(1.0, max(0.3, self._layout.radius / 12))
        widths = [(1.6 + 2.2 * use[edge]) * (2.5 if edge in inside_memory else 1.0) * scale for edge in edges]
        self._busy.set_linewidth(widths)

    def _show_dots(self, shown: Ints, frame: int) -> None:
        positions = self._positions_apart(shown, frame)
        colors = [self._colors[int(chunk)] for chunk in self._motion.chunk[shown]]
        radii = self._radii[shown]
        self._dots.set_offsets(positions)
        self._dots.set_sizes((2 * radii * POINTS) ** 2)
        self._dots.set_facecolor(colors)
        for number in self._numbers:
            number.set_visible(False)
        if len(shown) <= NUMBERS:
            for number, (x, y), color, radius, index in zip(
                self._numbers, positions, colors, radii, shown, strict=False
            ):
                if radius >= SMALLEST_NUMBERED:
                    number.set(
                        position=(x, y), text=str(self._motion.chunk[index]), color=text_color(color), visible=True
                    )

    def _positions_apart(self, shown: Ints, frame: int) -> np.ndarray:
        """Return the positions of the dots. Dots that would overlap are moved back along their lines."""
        taken: Counter[tuple[int, int]] = Counter()
        positions = []
        for index in shown:
            x, y = self._motion.position(index, frame)
            spot = round(x / 8), round(y / 8)
            if taken[spot]:
                pixels = 2.2 * self._radii[index] * min(taken[spot], LONGEST_QUEUE)
                back = pixels / (self._lengths[self._motion.line[index]] or 1.0)
                x, y = self._motion.position(index, frame, back)
            taken[spot] += 1
            positions.append((x, y))
        return np.array(positions, float).reshape(-1, 2)


def odd_links(trace: Trace) -> dict[Edge, float]:
    """Return the links with unusual bandwidths (bytes/s), or {} if there are more than six.

    A bandwidth is unusual if it differs from the most common one. If both directions of a link have the same unusual
    bandwidth, only one is listed. If some links are unlimited, all finite bandwidths in both directions are unusual.
    """
    finite = {(link.src, link.dst): link.bandwidth for link in trace.links if np.isfinite(link.bandwidth)}
    odd = finite
    if finite and len(trace.links) == len(finite):
        usual = Counter(finite.values()).most_common(1)[0][0]
        odd = {edge: rate for edge, rate in finite.items() if rate != usual}
        odd = {
            (a, b): rate
            for (a, b), rate in odd.items()
            if odd.get((b, a)) != rate or natural_order(a) < natural_order(b)
        }
    return odd if len(odd) <= 6 else {}  # more labels would not fit
