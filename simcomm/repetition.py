"""Predict a run under faults: simulate it with many seeds, and summarize the distribution of its times.

Fewer runs suffice if their times hardly differ. After 20, 30, 45, ... runs, the 95 % interval of the median is computed
from order statistics: it extends from the k-th smallest to the k-th largest of n times, where k is (n - 1.96 sqrt(n)) /
2, rounded down. No further run starts if the upper bound is within 2 % of the lower bound.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from math import inf, sqrt
from typing import TypeVar

import numpy as np

from collectives.records.trace import Trace, Unfinished
from collectives.records.waits import Leg, critical_path, waiting_seconds
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import repetitions, share_repetitions
from simcomm.model.faults import Faults

LOOK_FROM = 20  # runs before the first check
NARROW = 0.02  # tolerated width of the median's interval, relative to its lower end
MOST_SHOWN = 5  # entries of each list
Key = TypeVar("Key", int, str, tuple[int, int])


@dataclass(frozen=True)
class FailedRank:
    """A rank that failed during a run, and the time of the failure in seconds since the start of the run."""

    rank: int
    at_s: float


@dataclass(frozen=True)
class DownLink:
    """A link that went down during a run, at a time in seconds since the start of the run."""

    between: tuple[str, str]
    at_s: float


@dataclass(frozen=True)
class StuckRun:
    """The first repetition that hangs, with its failed ranks, unfinished operations and links that stay down."""

    failed: tuple[FailedRank, ...]
    unfinished: tuple[Unfinished, ...]
    down: tuple[DownLink, ...]


@dataclass(frozen=True)
class Distribution:
    """The distribution of a time in seconds over all runs. A quantile is None if it falls on runs that never end."""

    median_s: float | None
    p95_s: float | None
    worst_s: float | None


@dataclass(frozen=True)
class PeerWait:
    """The time in seconds that one rank waited for another rank."""

    rank: int
    s: float


@dataclass(frozen=True)
class WaitedFor:
    """A rank that other ranks waited for, the sum of their waits in seconds, and the ranks that waited longest."""

    rank: int
    s: float
    by: tuple[PeerWait, ...]


@dataclass(frozen=True)
class PathPart:
    """The time in seconds that one kind of work, for example ``messages 0 to 1``, takes on the critical path."""

    what: str
    s: float


@dataclass(frozen=True)
class LinkPart:
    """A degraded link with a ``share`` of its bandwidth. Its messages take ``s`` seconds of the critical path."""

    between: tuple[str, str]
    share: float
    s: float
    at_times: bool  # not during the whole run


@dataclass(frozen=True)
class Waiting:
    """The longest waits and parts of the critical path, in descending order. Times are means per run and step."""

    waited_for: tuple[WaitedFor, ...]
    critical_path: tuple[PathPart, ...]
    critical_path_s: float
    degraded_links: tuple[LinkPart, ...] = ()


@dataclass(frozen=True)
class FaultFigures:
    """Statistics over all repetitions of a run under faults."""

    repetitions: int  # completed runs
    never_ended: int
    asked: int | None = None  # requested runs, if more than completed
    stuck: StuckRun | None = None  # if some runs hang
    distribution: Distribution | None = None  # if some runs end
    waiting: Waiting | None = None  # if messages were recorded
    computing: str | None = None  # "free" if slow ranks have no effect, because reducing takes no time


def repeat(
    faults: Faults,
    cluster: Cluster,
    simulate: Callable[..., Trace],
    seconds: Callable[[Trace], float],
    *,
    record: bool,
    steps: int = 1,
    on_run: Callable[[], None] = lambda: None,
) -> tuple[Trace, FaultFigures]:
    """Simulate a run with each seed of ``faults``. Return the run with the median time, and statistics of all runs.

    ``seconds`` returns the time of a run. Times and waits are per step if a run has several ``steps``. Runs stop early
    if times hardly differ. Waits are summarized only if ``record`` is set. If no run ends, the first run is returned.
    ``on_run`` is called after each run.
    """
    traces = _enough_runs(faults, simulate, seconds, record, on_run)
    ended = sorted(((seconds(trace), trace) for trace in traces if trace.is_complete), key=lambda pair: pair[0])
    stuck = [trace for trace in traces if not trace.is_complete]
    about = FaultFigures(
        repetitions=len(traces),
        never_ended=len(stuck),
        asked=faults.runs if faults.runs > len(traces) else None,
        stuck=_stuck_run(stuck[0], faults) if stuck else None,
        distribution=_distribution([elapsed for elapsed, _ in ended], len(traces)) if ended else None,
        waiting=_waiting([trace for _, trace in ended], faults, cluster, steps) if ended and record else None,
    )
    return ended[(len(ended) - 1) // 2][1] if ended else traces[0], about


def _enough_runs(
    faults: Faults,
    simulate: Callable[..., Trace],
    seconds: Callable[[Trace], float],
    record: bool,
    on_run: Callable[[], None],
) -> list[Trace]:
    from simcomm.parallel import in_any_order  # not needed without faults

    done, times, looked = dict[int, Trace](), list[float](), LOOK_FROM
    runs = in_any_order(partial(_run, faults, simulate, record), range(faults.runs))
    with repetitions(), closing(runs):
        for number, trace in runs:
            done[number] = trace
            on_run()
            while len(times) in done:
                latest = done[len(times)]
                times.append(seconds(latest) if latest.is_complete else inf)
                if len(times) == looked:
                    if is_median_known(times):
                        return [done[each] for each in range(looked)]
                    looked += looked // 2
    return [done[each] for each in range(faults.runs)]


def _run(faults: Faults, simulate: Callable[..., Trace], record: bool, number: int) -> Trace:
    share_repetitions()
    return simulate(faults=faults.repetition(number), record=record)


def is_median_known(times: Sequence[float]) -> bool:
    """Return whether the 95 % interval of the median is at most 2 % wide. Runs that never end count as infinite.

    >>> is_median_known([1.0] * 20), is_median_known([1.0, 2.0] * 10)
    (True, False)
    """
    number, ordered = len(times), sorted(times)
    k = int((number - 1.96 * sqrt(number)) / 2)
    return k > 0 and ordered[-k] <= ordered[k - 1] * (1 + NARROW)


def _distribution(seconds: Sequence[float], runs: int) -> Distribution:
    """Return the distribution over all runs. ``seconds`` lists the runs that ended; the others count as infinite."""
    never = runs - len(seconds)
    all_seconds, method = [*seconds, *[inf] * never], "higher" if never else "linear"
    quantiles = [float(np.quantile(all_seconds, share, method=method)) for share in (0.5, 0.95, 1.0)]  # type: ignore[call-overload]
    return Distribution(*(value if value < inf else None for value in quantiles))


def _stuck_run(trace: Trace, faults: Faults) -> StuckRun:
    down = (link for link in faults.links if link.share == 0 and link.at <= trace.elapsed and link.lasting == inf)
    return StuckRun(
        tuple(FailedRank(rank, at) for rank, at in trace.failed.items()),
        tuple(trace.unfinished),
        tuple(DownLink(link.between, link.at) for link in down),
    )


def _waiting(traces: Sequence[Trace], faults: Faults, cluster: Cluster, steps: int) -> Waiting:
    paths = [critical_path(trace) for trace in traces]
    each = len(traces) * steps
    late = _mean([waiting_seconds(trace).items() for trace in traces], each)
    by_peer = _mean([((peer, seconds) for (_, peer), seconds in late.items())], 1)
    parts = _mean([((_name(leg.name, leg.src, leg.dst), leg.seconds) for leg in path) for path in paths], each)
    return Waiting(
        tuple(WaitedFor(peer, seconds, _longest(late, peer)) for peer, seconds in islice(by_peer.items(), MOST_SHOWN)),
        tuple(PathPart(part, seconds) for part, seconds in islice(parts.items(), MOST_SHOWN)),
        sum(leg.seconds for path in paths for leg in path) / each,
        _degraded_links(paths, faults, cluster, steps, max(trace.elapsed for trace in traces)),
    )


def _degraded_links(
    paths: Sequence[Sequence[Leg]], faults: Faults, cluster: Cluster, steps: int, longest: float
) -> tuple[LinkPart, ...]:
    """Return each degraded link with its seconds on the critical path (mean per run and step), in descending order.

    Links with 0 s are dropped. ``longest`` is the time of the longest run in seconds.
    """
    if not faults.links:
        return ()
    router = cluster.router()
    legs = [leg for path in paths for leg in path if leg.name == "message"]
    pairs = {(leg.src, leg.dst) for leg in legs}
    routes = {pair: router.route(*(cluster.hosts[rank] for rank in pair)) for pair in pairs}
    crossed = {pair: {frozenset(link) for link in pairwise(route)} for pair, route in routes.items()}
    parts = []
    for link in faults.links:
        seconds = sum(leg.seconds for leg in legs if frozenset(link.between) in crossed[leg.src, leg.dst])
        at_times = link.at > 0 or link.lasting < longest
        parts.append(LinkPart(link.between, link.share, seconds / len(paths) / steps, at_times))
    return tuple(sorted((part for part in parts if part.s > 0), key=lambda part: -part.s))


def _longest(late: dict[tuple[int, int], float], peer: int) -> tuple[PeerWait, ...]:
    """Return the longest waits for ``peer``. ``late`` maps (waiting rank, peer) to seconds, in descending order."""
    waits = [PeerWait(rank, seconds) for (rank, waited_for), seconds in late.items() if waited_for == peer]
    return tuple(waits[:MOST_SHOWN])


def _mean(runs: Iterable[Iterable[tuple[Key, float]]], number: int) -> dict[Key, float]:
    """Return, for each key, the sum of its seconds in all runs divided by ``number``, in descending order."""
    sums: defaultdict[Key, float] = defaultdict(float)
    for run in runs:
        for key, seconds in run:
            sums[key] += seconds / number
    return dict(sorted(sums.items(), key=lambda item: (-float(f"{item[1]:.9e}"), item[0])))  # rounded, for ties


def _name(name: str, src: int, dst: int) -> str:
    return f"messages {src} to {dst}" if name == "message" else f"{name} of rank {src}"
