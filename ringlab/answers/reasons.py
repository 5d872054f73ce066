"""Why a prediction under trouble is what it is, in sentences: who waited for whom, and what everyone waited for."""

from math import inf
from typing import Any

from collectives.records.trace import Unfinished
from collectives.units import format_size, format_time
from ringlab.answers.figures import ClusterFigures, CollectiveFigures, SideBySide, TrainingFigures
from simcomm.repetition import LinkPart, StuckRun, TroubleFigures, Waiting

UNRECORDED = "with this many messages nobody kept track of who waited for whom."
REDUCING_IS_FREE = "Reducing takes no time on this transport, so ranks that are slow at it change nothing."
MOST_NAMED = 3  # ranks or parts of the critical path named in a sentence
LEAST_BLAME = 0.1  # of the critical path, from which on a link in trouble is named


def reasons(figures: ClusterFigures[Any], title: str = "") -> list[str]:
    """Return a line for the largest size of each algorithm that was predicted under trouble, and for each training.

    A line begins with ``title``, the name of a what-if.
    """
    largest = max((entry.bytes for entry in figures.collectives), default=0)
    entries: list[CollectiveFigures[Any] | TrainingFigures[Any]] = [
        *(entry for entry in figures.collectives if entry.bytes == largest),
        *figures.training,
    ]
    where = f"{title}, " if title else ""
    return [f"{where}{_name(entry)}: {_describe(entry.trouble)}" for entry in entries if entry.trouble]


def effect(figures: ClusterFigures[Any], without: ClusterFigures[Any] | None = None) -> str:
    """Return a sentence about what trouble does to the quickest training, else to the quickest collective.

    ``without`` are the figures of the same without this trouble. The text is empty where there is no trouble.
    """
    entry = _quickest(figures)
    if entry is None or entry.trouble is None:
        return ""
    where = f"{figures.title}: {_name(entry)}"
    about, seconds = entry.trouble, _seconds(entry)
    if seconds is None:
        return f"{where} never ends{_why_stuck(about.stuck)}."
    others = _entries(without) if without and without.cluster == figures.cluster else []
    before = next((_seconds(one) for one in others if _name(one) == _name(entry) and one.trouble is None), None)
    slower = f", {seconds / before:.3g} times as long as the {format_time(before)} without" if before else ""
    never = f"; {about.never_ended} of {about.repetitions} runs never end" if about.never_ended else ""
    cause = _main_cause(about.waiting) if about.waiting else ""
    return f"{where} takes {format_time(seconds)}{slower}{cause}{never}."


def _entries(figures: ClusterFigures[Any]) -> list[CollectiveFigures[Any] | TrainingFigures[Any]]:
    largest = max((entry.bytes for entry in figures.collectives), default=0)
    collectives = [entry for entry in figures.collectives if entry.bytes == largest]
    return [*(figures.training or collectives)]


def _seconds(entry: CollectiveFigures[Any] | TrainingFigures[Any]) -> float | None:
    """Return the predicted seconds of a collective or of a training's step; None of one that never ends."""
    found: float | SideBySide | None = entry.time_s if isinstance(entry, CollectiveFigures) else entry.step_s
    return found.predicted if isinstance(found, SideBySide) else found


def _quickest(figures: ClusterFigures[Any]) -> CollectiveFigures[Any] | TrainingFigures[Any] | None:
    return min(_entries(figures), key=lambda entry: _seconds(entry) or inf, default=None)


def _why_stuck(stuck: StuckRun | None) -> str:
    causes = _what_failed(stuck) if stuck else []
    return f", as {' and '.join(causes[:MOST_NAMED])}" if causes else ""


def _what_failed(stuck: StuckRun) -> list[str]:
    failed = [f"rank {one.rank} failed at {format_time(one.at_s)}" for one in stuck.failed]
    return failed + [f"{' - '.join(one.between)} is down since {format_time(one.at_s)}" for one in stuck.down]


def _main_cause(waiting: Waiting) -> str:
    """Return what most of the critical path is: a link in trouble if one stands out, else the longest of its parts."""
    whole = waiting.critical_path_s
    if whole <= 0 or not waiting.critical_path:
        return ""
    link = waiting.troubled_links[0] if waiting.troubled_links else None
    if link is not None and link.s >= LEAST_BLAME * whole:
        return f"; {link.s / whole:.0%} of that is messages over {_describe_link(link)}"
    part = waiting.critical_path[0]
    if part.s < LEAST_BLAME * whole:
        return f"; no part of that is larger than {LEAST_BLAME:.0%}"
    return f"; the largest part is {part.what}, {part.s / whole:.0%}"


def _describe_link(link: LinkPart) -> str:
    """Return the ends of a link, and what is wrong with it.

    >>> _describe_link(LinkPart(("h3", "s0"), 0.1, 1.0, False)), _describe_link(LinkPart(("h3", "s0"), 0.0, 1.0, True))
    ('h3 - s0, which has 0.1 of its bandwidth', 'h3 - s0, which at times is down')
    """
    has = f"has {link.share:.3g} of its bandwidth" if link.share else "is down"
    return f"{' - '.join(link.between)}, which {'at times ' if link.at_times else ''}{has}"


def _name(entry: CollectiveFigures[Any] | TrainingFigures[Any]) -> str:
    if isinstance(entry, CollectiveFigures):
        return f"{entry.algorithm}, {format_size(entry.bytes)}"
    return f"a step with {entry.gradient_sync}"


def _describe(trouble: TroubleFigures) -> str:
    sentences = [_why_it_never_ends(trouble, trouble.stuck)] if trouble.stuck else []
    if trouble.distribution:
        waiting = trouble.waiting
        sentences += [_describe_waiting(waiting), _describe_critical_path(waiting)] if waiting else [UNRECORDED]
    sentences += [REDUCING_IS_FREE] if trouble.computing == "free" else []
    return " ".join(sentences)


def _why_it_never_ends(trouble: TroubleFigures, stuck: StuckRun) -> str:
    runs = trouble.repetitions
    how_often = "it never ends" if runs == 1 else f"{trouble.never_ended} of {runs} runs never end"
    failed = _what_failed(stuck)
    waiting = [_describe_unfinished(one) for one in stuck.unfinished[:MOST_NAMED]]
    more = len(stuck.unfinished) - MOST_NAMED
    waiting += [f"{more} more wait for these"] if more > 0 else []
    return f"{how_often}: {'; '.join(failed + waiting)}."


def _describe_unfinished(one: Unfinished) -> str:
    direction = f"to rank {one.peer}" if one.sends else f"from rank {one.peer}"
    since = f"since {format_time(one.since)}"
    if one.is_under_way:
        return f"rank {one.rank} waits in step {one.step} {since} for a message {direction} that is stuck on its way"
    half = "receive" if one.sends else "send"
    return f"rank {one.rank} waits in step {one.step} {since} for rank {one.peer} to {half}"


def _describe_waiting(waiting: Waiting) -> str:
    if not waiting.waited_for:
        return "no rank waited for another to be ready."
    each = [
        f"rank {one.rank} {format_time(one.s)}"
        + (f" (rank {one.by[0].rank} {format_time(one.by[0].s)} of it)" if one.by else "")
        for one in waiting.waited_for[:MOST_NAMED]
    ]
    return f"waited for, by all other ranks together: {', '.join(each)}."


def _describe_critical_path(waiting: Waiting) -> str:
    whole = waiting.critical_path_s
    if whole <= 0:
        return ""
    parts = [f"{part.what} {part.s / whole:.0%}" for part in waiting.critical_path[:MOST_NAMED]]
    links = [f"{_describe_link(link)}, {link.s / whole:.0%}" for link in waiting.troubled_links[:MOST_NAMED]]
    over = f"; messages over {', '.join(links)}" if links else ""
    return f"Its end waited for: {', '.join(parts)}{over}."
