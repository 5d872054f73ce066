"""What an answer comes to, in sentences; every number in them is in the answer or follows from the algorithms."""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, NamedTuple

from collectives.declaration import Algorithm
from collectives.records.spans import PHASES
from collectives.records.trace import Unfinished
from collectives.schedule.build import build_schedule
from collectives.units import format_size, format_time
from ringlab.shared.figures import ClusterFigures, CollectiveFigures, SideBySide, TrainingFigures
from ringlab.shared.scenario_answer import Entry, ScenarioAnswer
from ringlab.shared.workload import predictable
from ringlab.table import keep_few
from scenarios import LoadedScenario
from simcomm.cluster.cluster import Cluster
from simcomm.repetition import FaultFigures, LinkPart, StuckRun, Waiting

UNRECORDED = "with this many messages nobody kept track of who waited for whom."
REDUCING_IS_FREE = "Reducing takes no time on this transport, so ranks that are slow at it change nothing."
MOST_NAMED = 3  # ranks or parts of the critical path named in a sentence
PHASE_LOOKED_AT = 0.01  # of a step, from which on the error of a phase counts
TIE = 0.01  # times that differ by less are equal: closed forms assume chunks of equal length
WORTH_NAMING = 0.1  # of the critical path, from which on a degraded link is


class Conclusions(NamedTuple):
    """What matters most, in a few sentences, and the rest."""

    conclusions: tuple[str, ...]
    explanations: tuple[str, ...]


def conclude(answer: ScenarioAnswer[Any], scenario: LoadedScenario, caveats: Sequence[str] = ()) -> Conclusions:
    """Return the fastest algorithm and sync, why clusters differ, the worst error, and what faults do.

    No sentence concludes from times that were measured while the machine was busy. Last are the ``caveats`` of the
    predictions. Where these are too many, the first are among what explains the rest, such as who waited for whom.
    """
    left_out = f"The [training] table is left out: {scenario.left_out}."
    sentences = [
        *([left_out] if scenario.left_out else []),
        *_fastest_collective(answer),
        *describe_crossovers(answer.place, answer.collectives),
        *_fastest_training(answer),
        *_why_clusters_differ(answer, scenario),
        *_worst_error(answer),
        *filter(None, (effect(answer.own), *(effect(other, answer.own) for other in answer.what_ifs))),
        *caveats,
    ]
    details = [*reasons(answer.own), *(line for other in answer.what_ifs for line in reasons(other, other.title))]
    return Conclusions(*keep_few(sentences, details))


def headline(answer: ScenarioAnswer[Any]) -> str:
    """Return the sentence that answers a scenario's question: of its quickest training, else its collective.

    It is the title where there is none.
    """
    return next(iter([*_fastest_training(answer), *_fastest_collective(answer)]), answer.title)


def _is_trusted(values: Iterable[float | SideBySide | None]) -> bool:
    """Return whether no value was measured while the machine was busy."""
    return all(value.trusted for value in values if isinstance(value, SideBySide))


def _number(value: float | SideBySide | None) -> float:
    """Return the measured value, the predicted one where none was measured, or infinity for a run that never ends."""
    if isinstance(value, SideBySide):
        value = value.predicted if value.measured is None else value.measured
    return inf if value is None else value


def _fastest_collective(answer: ScenarioAnswer[Any]) -> list[str]:
    """Return the fastest at the largest size, beside the next fastest."""
    entries: Sequence[CollectiveFigures[Any]] = answer.collectives
    if not entries or not _is_trusted(entry.time_s for entry in entries):
        return []
    largest = max(entry.bytes for entry in entries)
    ranked = sorted((entry for entry in entries if entry.bytes == largest), key=lambda entry: _number(entry.time_s))
    best, where = ranked[0], f"{answer.place}, {format_size(largest)}"
    fast = _number(best.time_s)
    if fast == inf:
        return [f"{where}: no run comes to its end."]
    if fast == 0:
        return []  # one rank sends nothing
    takes = f"{best.algorithm} takes {_describe_time(best.time_s)}"
    others = [entry for entry in ranked if entry.algorithm != best.algorithm]
    if not others:
        return [f"{where}: {takes}."]
    following = others[0]
    ratio = _number(following.time_s) / fast
    if ratio == inf:
        return [f"{where}: {takes}, {following.algorithm} never ends."]
    faster = f"{ratio:.2f} times as fast as" if ratio > 1.05 else "no faster than"
    return [f"{where}: {takes} and is {faster} {following.algorithm}, which takes {_describe_time(following.time_s)}."]


def describe_crossovers(where: str, entries: Iterable[CollectiveFigures[Any]]) -> list[str]:
    """Return a sentence with the sizes at which each algorithm is fastest; none if one is fastest at all sizes.

    Of algorithms that are equally fast, the sentence names the one that stays fastest for the most sizes.
    """
    entries = list(entries)
    if not _is_trusted(entry.time_s for entry in entries):
        return []
    seconds = dict[int, dict[str, float]]()
    for entry in entries:
        if (time := _number(entry.time_s)) < inf:
            seconds.setdefault(entry.bytes, {})[entry.algorithm] = time
    sizes, fastest = sorted(seconds), list[list[str]]()
    for times in map(seconds.__getitem__, sizes):
        limit = min(times.values()) * (1 + TIE)
        fastest.append(sorted((name for name in times if times[name] <= limit), key=times.__getitem__))
    parts, at = list[str](), 0
    while at < len(sizes):
        ends = {
            name: next((i for i in range(at, len(sizes)) if name not in fastest[i]), len(sizes)) for name in fastest[at]
        }
        name = max(ends, key=ends.__getitem__)
        first, last = format_size(sizes[at]), format_size(sizes[ends[name] - 1])
        parts.append(f"{name} {_describe_sizes(first, last, at == 0, ends[name] == len(sizes))}")
        at = ends[name]
    return [f"{where}: fastest is {', '.join(parts)}."] if len(parts) > 1 else []


def _describe_sizes(first: str, last: str, is_smallest: bool, is_largest: bool) -> str:
    """Return a range of sizes, open towards the smallest and the largest.

    >>> _describe_sizes("1 KiB", "4 KiB", True, False), _describe_sizes("4 KiB", "4 KiB", False, False)
    ('up to 4 KiB', 'at 4 KiB')
    """
    if is_smallest:
        return f"up to {last}"
    if is_largest:
        return f"from {first} on"
    return f"at {first}" if first == last else f"from {first} to {last}"


def _describe_time(value: float | SideBySide | None) -> str:
    shown = format_time(_number(value))
    if isinstance(value, SideBySide) and value.predicted is not None and value.measured is not None:
        return f"{shown} (predicted {format_time(value.predicted)})"
    return shown


def _fastest_training(answer: ScenarioAnswer[Any]) -> list[str]:
    entries: Sequence[TrainingFigures[Any]] = answer.training
    if not entries or not _is_trusted(entry.step_s for entry in entries):
        return []
    best = min(entries, key=lambda entry: _number(entry.step_s))
    if _number(best.step_s) == inf and best.test_accuracy is not None:
        return [f"{answer.place}: no step was left to train."]
    if _number(best.step_s) == inf:
        return [f"{answer.place}: training never comes to its end."]
    waited, sync = _number(best.sync_s), "gradient sync"
    if best.exposed_s is not None:
        waited, sync = best.exposed_s, "gradient sync that backward does not hide"
    is_known = waited > 0 or best.exposed_s is not None
    share = f", {waited / _number(best.step_s):.0%} of it {sync}" if is_known else ""
    ranks, efficiency = best.world_size, _number(best.scaling_efficiency)
    work = f"; {ranks} ranks do {efficiency:.0%} of {ranks} times one rank's work" if ranks > 1 else ""
    return [f"{answer.place}: with {best.gradient_sync} a step takes {_describe_time(best.step_s)}{share}{work}."]


def _worst_error(answer: ScenarioAnswer[Any]) -> list[str]:
    """Return which of all rows of the tables is predicted worst."""
    collectives: Sequence[CollectiveFigures[Any]] = answer.collectives
    rows = [(one.time_s, f"{one.algorithm} at {format_size(one.bytes)}") for one in collectives]
    for training in answer.training:
        for key in ("step_s", *(f"{phase}_s" for phase in PHASES), "scaling_efficiency"):
            value, name = getattr(training, key), key.removesuffix("_s").replace("_", " ")
            if name not in PHASES or _number(value) >= PHASE_LOOKED_AT * _number(training.step_s):
                rows.append((value, f"{name} with {training.gradient_sync}"))
    compared = [(value.error, name) for value, name in rows if isinstance(value, SideBySide) and value.trusted]
    errors = [(abs(error), name) for error, name in compared if error is not None]
    if not errors:
        return []
    worst, name = max(errors)
    return [f"The predictions are off by at most {worst:.0%}, for {name}."]


def _why_clusters_differ(answer: ScenarioAnswer[Any], scenario: LoadedScenario) -> list[str]:
    """Return why the ring gains more on one cluster than on another, from what the busiest rank sends."""
    syncs = {one.sync_name: one.gradient_sync for one in predictable(scenario.trainings) if one.gradient_sync}
    here = _ring_gain(answer.training)
    if not {"naive", "ring"} <= set(syncs) or here is None:
        return []
    sentences = []
    for other, entry in zip(scenario.what_ifs, answer.what_ifs, strict=False):
        there = _ring_gain(entry.training)
        if there is None or _format_gain(here) == _format_gain(there):
            continue
        naive, ring = (
            " and ".join(f"{busiest_sends(syncs[name], one.cluster):.3g}" for one in (scenario, other))
            for name in ("naive", "ring")
        )
        sentences.append(
            f"The ring gains {_format_gain(here)} here and {_format_gain(there)} on {other.title}: its busiest rank "
            f"sends {ring} times the buffer, that of naive {naive} times."
        )
    return sentences


def _ring_gain(entries: Sequence[TrainingFigures[Any]]) -> float | None:
    """Return how many times as long the sync takes with naive as with ring."""
    seconds = {entry.gradient_sync: _number(entry.sync_s) for entry in entries}
    if not _is_trusted(entry.sync_s for entry in entries):
        return None
    if inf in seconds.values() or not {"naive", "ring"} <= set(seconds) or seconds["ring"] <= 0:
        return None
    return seconds["naive"] / seconds["ring"]


def _format_gain(gain: float) -> str:
    return "nothing" if gain < 1.05 else f"{gain:.1f} times"


def busiest_sends(algorithm: Algorithm, cluster: Cluster) -> float:
    """Return how many times the buffer the rank sends that sends most.

    >>> from collectives import find_algorithm
    >>> from simcomm import star
    >>> busiest_sends(find_algorithm("all_reduce/ring"), star(8, "10 Gbit/s", "5 us"))
    1.75
    """
    schedule = build_schedule(algorithm, cluster.world_size)
    return int(schedule.elements_sent(schedule.chunks).max(initial=0)) / schedule.chunks


def reasons(figures: ClusterFigures[Any], title: str = "") -> list[str]:
    """Return a line for the largest size of each algorithm that was predicted under faults, and for each training.

    A line begins with ``title``, the name of a what-if.
    """
    entries = [*_of_the_largest(figures), *figures.training]
    where = f"{title}, " if title else ""
    return [f"{where}{_name(entry)}: {_describe(entry.faults)}" for entry in entries if entry.faults]


def effect(figures: ClusterFigures[Any], without: ClusterFigures[Any] | None = None) -> str:
    """Return a sentence about what faults do to the quickest training, else to the quickest collective.

    ``without`` are the figures of the same without these faults. The text is empty where there are no faults.
    """
    entry = min(_shown(figures), key=lambda one: _seconds(one) or inf, default=None)
    if entry is None or entry.faults is None:
        return ""
    where = f"{figures.title}: {_name(entry)}"
    about, seconds = entry.faults, _seconds(entry)
    if seconds is None:
        return f"{where} never ends{_why_stuck(about.stuck)}."
    others = _shown(without) if without and without.cluster == figures.cluster else []
    before = next((_seconds(one) for one in others if _name(one) == _name(entry) and one.faults is None), None)
    slower = f", {seconds / before:.3g} times as long as the {format_time(before)} without" if before else ""
    never = f"; {about.never_ended} of {about.repetitions} runs never end" if about.never_ended else ""
    cause = _main_cause(about.waiting) if about.waiting else ""
    return f"{where} takes {format_time(seconds)}{slower}{cause}{never}."


def _of_the_largest(figures: ClusterFigures[Any]) -> list[Entry]:
    """Return the collectives at the largest size."""
    largest = max((entry.bytes for entry in figures.collectives), default=0)
    return [entry for entry in figures.collectives if entry.bytes == largest]


def _shown(figures: ClusterFigures[Any]) -> list[Entry]:
    return [*figures.training] or _of_the_largest(figures)


def _seconds(entry: Entry) -> float | None:
    """Return the predicted seconds of a collective or of a training's step; None of one that never ends."""
    found: float | SideBySide | None = entry.time_s if isinstance(entry, CollectiveFigures) else entry.step_s
    return found.predicted if isinstance(found, SideBySide) else found


def _why_stuck(stuck: StuckRun | None) -> str:
    causes = _what_failed(stuck) if stuck else []
    return f", as {' and '.join(causes[:MOST_NAMED])}" if causes else ""


def _what_failed(stuck: StuckRun) -> list[str]:
    failed = [f"rank {one.rank} failed at {format_time(one.at_s)}" for one in stuck.failed]
    return failed + [f"{' - '.join(one.between)} is down since {format_time(one.at_s)}" for one in stuck.down]


def _main_cause(waiting: Waiting) -> str:
    """Return what most of the critical path is: a degraded link if one stands out, else the longest of its parts."""
    whole = waiting.critical_path_s
    if whole <= 0 or not waiting.critical_path:
        return ""
    link = waiting.degraded_links[0] if waiting.degraded_links else None
    if link is not None and link.s >= WORTH_NAMING * whole:
        return f"; {link.s / whole:.0%} of that is messages over {_describe_link(link)}"
    part = waiting.critical_path[0]
    if part.s < WORTH_NAMING * whole:
        return f"; no part of that is larger than {WORTH_NAMING:.0%}"
    return f"; the largest part is {part.what}, {part.s / whole:.0%}"


def _describe_link(link: LinkPart) -> str:
    """Return the ends of a link, and what is wrong with it.

    >>> _describe_link(LinkPart(("h3", "s0"), 0.1, 1.0, False)), _describe_link(LinkPart(("h3", "s0"), 0.0, 1.0, True))
    ('h3 - s0, which has 0.1 of its bandwidth', 'h3 - s0, which at times is down')
    """
    has = f"has {link.share:.3g} of its bandwidth" if link.share else "is down"
    return f"{' - '.join(link.between)}, which {'at times ' if link.at_times else ''}{has}"


def _name(entry: Entry) -> str:
    if isinstance(entry, CollectiveFigures):
        return f"{entry.algorithm}, {format_size(entry.bytes)}"
    return f"a step with {entry.gradient_sync}"


def _describe(faults: FaultFigures) -> str:
    sentences = [_why_it_never_ends(faults, faults.stuck)] if faults.stuck else []
    if faults.distribution:
        waiting = faults.waiting
        sentences += [_describe_waiting(waiting), _describe_critical_path(waiting)] if waiting else [UNRECORDED]
    sentences += [REDUCING_IS_FREE] if faults.computing == "free" else []
    return " ".join(sentences)


def _why_it_never_ends(faults: FaultFigures, stuck: StuckRun) -> str:
    runs = faults.repetitions
    how_often = "it never ends" if runs == 1 else f"{faults.never_ended} of {runs} runs never end"
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
    links = [f"{_describe_link(link)}, {link.s / whole:.0%}" for link in waiting.degraded_links[:MOST_NAMED]]
    over = f"; messages over {', '.join(links)}" if links else ""
    return f"Its end waited for: {', '.join(parts)}{over}."
