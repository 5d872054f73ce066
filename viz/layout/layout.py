"""Where the hosts and switches of a trace are drawn, and the lines on which its messages travel.

The GPUs of machines stand in a row with their switches and CPUs above; the hosts of a torus in rows and columns; the
ranks of this machine beside its memory; all other networks on ellipses. Everything follows from names and links: no
random numbers, no iteration.
"""

from collectives.records.trace import Trace
from viz.layout.ellipses import lay_out_ellipses
from viz.layout.geometry import Box, Layout
from viz.layout.machines import lay_out_machines
from viz.layout.memory import lay_out_memory
from viz.layout.torus import lay_out_torus
from viz.layout.traced_graph import hosts_of, idle_hosts, memory_edge, traced_graph, used_nodes


def lay_out(trace: Trace, box: Box) -> Layout:
    """Return the layout of a trace's cluster; the middles of its hosts are inside ``box``.

    >>> layout = lay_out(Trace("two ranks", "predicted", 2, 1.0), Box(0, 0, 100, 100))
    >>> {host: (float(x), float(y)) for host, (x, y) in layout.positions.items()}
    {'h0': (0.0, 50.0), 'h1': (100.0, 50.0)}
    """
    graph, hosts = traced_graph(trace), hosts_of(trace)
    regular = lay_out_machines(graph, hosts, used_nodes(trace), box) or lay_out_torus(graph, hosts, box)
    if regular:
        return regular
    all_hosts = tuple(dict.fromkeys((*hosts, *idle_hosts(graph, hosts))))
    memory = memory_edge(graph, all_hosts)
    if memory:
        return lay_out_memory(all_hosts, hosts, memory, box)
    return lay_out_ellipses(graph, all_hosts, hosts, box)
