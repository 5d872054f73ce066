"""What pictures say about a trace in words: a line for the heading, a clock, the busiest link."""

from math import floor, inf, isfinite, log10

from collectives.errors import InputError
from collectives.records.trace import Trace, TracedLink
from collectives.units import TIMES, format_bandwidth, format_size, format_time
from viz.layout.geometry import Edge, natural
from viz.layout.layout import is_through_memory


def check_something_happens(trace: Trace) -> None:
    """Raise InputError for a trace without messages and spans, or one that takes no time."""
    if not trace.messages and not trace.spans:
        raise InputError(f"{trace.title}: nothing to draw: the trace has no messages and no spans")
    if not 0 < trace.elapsed < inf:
        raise InputError(f"{trace.title}: nothing to draw: the trace takes {trace.elapsed} seconds")


def unit_for(seconds: float) -> tuple[str, float]:
    """The unit in which a time is written, and how many seconds it has."""
    unit = format_time(seconds).split()[1]
    return unit, float(TIMES[unit])


def clock(time: float, elapsed: float) -> str:
    """``time`` in the unit that suits ``elapsed``, with as many digits all along, so that it does not jump about."""
    unit, size = unit_for(elapsed)
    digits = max(0, 2 - floor(log10(float(f"{elapsed / size:.3g}"))))
    return f"{time / size:.{digits}f} {unit}"


def describe(trace: Trace) -> str:
    """One line: predicted or measured, ranks, bytes, and the bandwidth that most links have."""
    parts = [trace.kind, f"{trace.world_size} {'rank' if trace.world_size == 1 else 'ranks'}"]
    if nbytes := trace.facts.get("nbytes"):
        parts.append(format_size(nbytes))
    if trace.messages:
        parts.append(f"{len(trace.messages)} messages")
    rates = [link.bandwidth for link in trace.links]
    if rates and isfinite(usual := max(set(rates), key=rates.count)):
        parts.append(f"links of {format_bandwidth(usual)}")
    return "  ·  ".join(parts)


def busiest_link(trace: Trace) -> str:
    """The links that were used most, as a share of what they could have carried until the end; empty if not known."""
    use = {(link.src, link.dst): link.nbytes / (link.bandwidth * trace.elapsed) for link in _finite(trace.links)}
    top = min(max(use.values(), default=0.0), 1.0)
    most = [edge for edge, share in use.items() if share > 0.99 * top]
    if not top:
        return ""
    if len(most) == len(use) > 1:
        return f"all {len(use)} links equally busy: {100 * top:.0f} % of what they could carry"
    if len({frozenset(edge) for edge in most}) == 1:
        return f"busiest link: {_link_name(trace, most)}, {100 * top:.0f} % of what it could carry"
    return f"busiest: {len(most)} of {len(use)} links, each {100 * top:.0f} % of what it could carry"


def _finite(links: list[TracedLink]) -> list[TracedLink]:
    return [link for link in links if isfinite(link.bandwidth)]


def _link_name(trace: Trace, edges: list[Edge]) -> str:
    names = {host: f"rank {rank}" for rank, host in enumerate(trace.hosts)}
    if not any(node in names for node in edges[0]) and is_through_memory(trace):
        return "memory"
    (a, b), arrow = min(edges, key=lambda edge: natural(edge[0])), "→" if len(edges) == 1 else "↔"
    return f"{names.get(a, a)} {arrow} {names.get(b, b)}"
