"""The layout of the ranks of one machine, which are joined by its memory."""

import numpy as np

from viz.layout.geometry import Box, Edge, Layout, fitting_radius


def lay_out_memory(all_hosts: tuple[str, ...], hosts: tuple[str, ...], memory_edge: Edge, box: Box) -> Layout:
    """Put the ranks in a row above the memory, more than eight also in one below; lines go straight into it."""
    above = len(all_hosts) if len(all_hosts) <= 8 else (len(all_hosts) + 1) // 2
    below = len(all_hosts) - above
    centre = 0.5 if below else 0.3
    memory = Box(*box.at(-0.04, centre - 0.12), *box.at(1.04, centre + 0.12))
    upper = [
        box.at(0.5 if above == 1 else 0.08 + 0.84 * i / (above - 1), 0.95 if below else 0.82) for i in range(above)
    ]
    lower = [box.at(0.08 + 0.84 * i / max(above - 1, 1), 0.05) for i in range(below)]
    positions = dict(zip(all_hosts, upper + lower, strict=True))
    radius = fitting_radius(list(positions.values()))
    lines = {memory_edge: np.array([(memory.left + 14, memory.middle[1]), (memory.right - 14, memory.middle[1])])}
    for host, (x, y) in positions.items():
        side, aside = 1 if y > memory.top else -1, min(8.0, radius / 2)
        near, edge = y - side * radius, memory.top if side > 0 else memory.bottom
        lines[host, memory_edge[0]] = np.array([(x - aside, near), (x - aside, edge)])
        lines[memory_edge[1], host] = np.array([(x + aside, edge), (x + aside, near)])
    return Layout(positions, hosts, dict.fromkeys(all_hosts, radius), lines, memory)
