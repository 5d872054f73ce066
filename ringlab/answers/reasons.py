"""Why a prediction under trouble is what it is, in sentences: who waited for whom, and what everyone waited for."""

from typing import Any

from collectives.records.trace import Unfinished
from collectives.units import format_size, format_time
from ringlab.answers.figures import ClusterFigures, CollectiveFigures, TrainingFigures
from ringlab.answers.repeated_runs import StuckRun, TroubleFigures, Waiting

UNRECORDED = "with this many messages nobody kept track of who waited for whom."
REDUCING_IS_FREE = "Reducing takes no time on this transport, so ranks that are slow at it change nothing."
MOST_NAMED = 3  # ranks or parts of the critical path named in a sentence


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


def _name(entry: CollectiveFigures[Any] | TrainingFigures[Any]) -> str:
    if isinstance(entry, CollectiveFigures):
        return f"{entry.algorithm}, {format_size(entry.bytes)}"
    return f"training with {entry.gradient_sync}"


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
    failed = [f"rank {one.rank} failed at {format_time(one.at_s)}" for one in stuck.failed]
    failed += [f"{' - '.join(one.between)} is down since {format_time(one.at_s)}" for one in stuck.down]
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
    return f"Its end waited for: {', '.join(parts)}."
