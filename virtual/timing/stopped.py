"""Show a stopped run as a Trace: its events, and which ranks wait for each other."""

from dataclasses import replace

from collectives.records.spans import Span, Spans
from collectives.records.trace import ProgramFailure, Trace, Unfinished
from virtual.ranks.finding import STARTER, ProgramFinding

SHORTEST = 1e-6  # seconds; displayed duration of a run without events


def mark_failure(trace: Trace, finding: ProgramFinding) -> Trace:
    """Return a Trace that shows where its program failed: the ranks of the cycle, or the first rank of the finding.

    If the trace is empty, it shows the operations that ranks wait in.
    """
    elapsed = trace.elapsed or SHORTEST
    places = [place for place in finding.places if place.ranks and STARTER not in place.ranks]
    if not places:
        return trace
    waiting = [
        Span(rank, place.what.partition("(")[0], 0, 0.0, elapsed)
        for place in places
        if place.site is not None
        for rank in place.ranks
    ]
    spans = trace.spans if len(trace.messages) or len(trace.spans) else Spans.of(waiting).sorted()
    where = str(places[0].site) if places[0].site is not None else ""
    rank = finding.circle[0] if finding.circle else places[0].ranks[0]
    text = f"deadlock: {finding.title}" if finding.circle else finding.title
    failure = ProgramFailure(rank, None, where, text, elapsed, circle=finding.circle)
    return replace(trace, elapsed=elapsed, spans=spans, failure=failure, unfinished=_waits(finding, spans))


def _waits(finding: ProgramFinding, spans: Spans) -> list[Unfinished]:
    doing = {rank: place.what.partition("(")[0] for place in finding.places for rank in place.ranks}
    last = {span.rank: span for span in spans}
    pairs = zip(finding.circle, (*finding.circle[1:], *finding.circle[:1]), strict=True)
    unfinished = []
    for rank, peer in pairs:
        verb = doing.get(rank, "")
        unfinished.append(Unfinished(rank, peer, verb in ("send", "isend"), 0, 0, _since(last.get(rank), verb), False))
    return unfinished


def _since(last: Span | None, doing: str) -> float:
    """Return when a rank's wait began: at the begin of its last span if that span is the wait, otherwise at its end."""
    if last is None:
        return 0.0
    return last.begin if last.name == doing else last.end
