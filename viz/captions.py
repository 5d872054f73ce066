"""Captions for a trace: the line under the title, the clock, and the busiest link."""

from math import floor, inf, isfinite, log10

from collectives.errors import InputError
from collectives.records.trace import Trace
from collectives.units import TIMES, format_bandwidth, format_size, format_time
from viz.layout.geometry import Edge, natural_order
from viz.layout.layout import is_through_memory


def check_something_happens(trace: object) -> None:
    """Raise InputError unless ``trace`` is a Trace of finite, non-zero duration with messages, spans or a failure."""
    if not isinstance(trace, Trace):
        raise InputError(f"trace must be a Trace, such as simcomm.run returns, not {trace!r}")
    if not len(trace.messages) and not len(trace.spans) and trace.failure is None:
        raise InputError(f"{trace.title}: nothing to draw: the trace has no messages and no spans")
    if not 0 < trace.elapsed < inf:
        raise InputError(f"{trace.title}: nothing to draw: the trace takes {trace.elapsed} seconds")


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit in which ``format_time`` shows ``seconds``, and the length of this unit in seconds."""
    unit = format_time(seconds).split()[1]
    return unit, float(TIMES[unit])


def format_clock(time: float, elapsed: float) -> str:
    """Return ``time`` (seconds) as text, in a unit that suits ``elapsed``.

    The unit and the number of decimals depend only on ``elapsed``, so that a running clock does not jump.

    >>> format_clock(0.00123, elapsed=0.0125)
    '1.2 ms'
    """
    unit, size = time_unit(elapsed)
    digits = max(0, 2 - floor(log10(float(f"{elapsed / size:.3g}"))))
    return f"{time / size:.{digits}f} {unit}"


def describe_trace(trace: Trace) -> str:
    """Return a summary such as ``predicted · 4 ranks · 1 MiB · 24 messages · links of 10 Gbit/s``."""
    parts = [trace.kind, f"{trace.world_size} {'rank' if trace.world_size == 1 else 'ranks'}"]
    if nbytes := trace.facts.get("nbytes"):
        parts.append(format_size(nbytes))
    if len(trace.messages):
        parts.append(f"{len(trace.messages)} messages")
    rates = [link.bandwidth for link in trace.links if link.nbytes > 0]
    if rates and isfinite(usual := max(set(rates), key=rates.count)):
        parts.append(f"links of {format_bandwidth(usual)}")
    return "  ·  ".join(parts)


def describe_failure(trace: Trace) -> str:
    """Return a sentence about a trace's program failure, or "" if there is none.

    The sentence names the line of the program if the line is known and the failure is not a deadlock.

    >>> from collectives.records.trace import ProgramFailure
    >>> describe_failure(Trace("x", "predicted", 2, 1.0, failure=ProgramFailure(0, 1, "my.py:9", "deadlock")))
    'program error at rank 0, step 1 (my.py:9): deadlock'
    """
    failure = trace.failure
    if failure is None:
        return ""
    where = f" ({failure.where})" if failure.where else ""
    if failure.circle:
        return f"ends in a {failure.text}"
    at = f"rank {failure.rank}, " + ("at its end" if failure.step is None else f"step {failure.step}")
    return f"program error at {at}{where}: {failure.text}"


def is_stuck_at_once(trace: Trace) -> bool:
    """Return whether the ranks deadlock before any message or span, so that ``elapsed`` is meaningless."""
    return trace.failure is not None and bool(trace.failure.circle) and not (len(trace.messages) or len(trace.spans))


def describe_busiest_link(trace: Trace) -> str:
    """Return text about the links with the highest utilization, such as ``busiest link: rank 0 → s0, 80 % ...``.

    Return "" if no link of limited bandwidth is used.
    """
    known = [link for link in trace.links if isfinite(link.bandwidth)]
    use = {(link.src, link.dst): link.nbytes / (link.could_carry(trace.elapsed) or inf) for link in known}
    top = min(max(use.values(), default=0.0), 1.0)
    most = [edge for edge, share in use.items() if share > 0.99 * top]
    if not top:
        return ""
    if len(most) == len(use) > 1:
        return f"all {len(use)} links equally busy: {100 * top:.0f} % of their capacity"
    if len({frozenset(edge) for edge in most}) == 1:
        return f"busiest link: {_link_name(trace, most)}, {100 * top:.0f} % of its capacity"
    return f"busiest: {len(most)} of {len(use)} links, each {100 * top:.0f} % of its capacity"


def _link_name(trace: Trace, edges: list[Edge]) -> str:
    """Return the name of a link, such as ``rank 0 ↔ s0``. ``edges`` has one or both directions of the link."""
    names = {host: f"rank {rank}" for rank, host in enumerate(trace.hosts)}
    if not any(node in names for node in edges[0]) and is_through_memory(trace):
        return "memory"
    (a, b), arrow = min(edges, key=lambda edge: natural_order(edge[0])), "→" if len(edges) == 1 else "↔"
    return f"{names.get(a, a)} {arrow} {names.get(b, b)}"
