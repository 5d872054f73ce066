"""Predictions under trouble: the same question asked with many seeds, and what came of it as a distribution."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from collectives.records.trace import Trace
from collectives.records.waits import critical_path, waits
from simcomm.model.trouble import Trouble

Entry = dict[str, Any]
Key = TypeVar("Key", int, str, tuple[int, int])
SHOWN = 5  # of ranks that others waited for, and of the critical path


def under(
    trouble: Trouble, simulate: Callable[..., Trace], entry: Callable[[Trace], Entry], key: str, record: bool
) -> Entry:
    """The entry of the run with the median ``key`` (seconds), and under "trouble" how all of them went.

    Why they took so long is told from their messages, if these are recorded.
    """
    traces = [simulate(trouble=trouble.repetition(number), record=record) for number in range(trouble.runs)]
    ended = [(entry(trace), trace) for trace in traces if trace.is_complete]
    if not ended:
        return entry(traces[0]) | {"trouble": _stuck(traces, trouble)}
    ended.sort(key=lambda pair: float(pair[0][key]))
    distribution = _distribution([float(found[key]) for found, _ in ended], len(traces))
    about = _stuck(traces, trouble) | distribution | (_reasons([trace for _, trace in ended]) if record else {})
    return ended[(len(ended) - 1) // 2][0] | {"trouble": about}


def _distribution(seconds: Sequence[float], runs: int) -> Entry:
    """Of all runs, of which these ended: one that never does is worse than any that does."""
    never = runs - len(seconds)
    every, how = [*seconds, *[inf] * never], "higher" if never else "linear"
    shares = {"median_s": 0.5, "p95_s": 0.95, "worst_s": 1.0}
    found = {name: float(np.quantile(every, share, method=how)) for name, share in shares.items()}  # type: ignore[call-overload]
    return {name: value if value < inf else None for name, value in found.items()}


def _stuck(traces: Sequence[Trace], trouble: Trouble) -> Entry:
    """How many runs there were, how many never ended, and why the first of those did not."""
    stuck = [trace for trace in traces if not trace.is_complete]
    about: Entry = {"repetitions": len(traces), "never_ended": len(stuck)}
    if stuck:
        about["failed"] = [{"rank": rank, "at_s": at} for rank, at in stuck[0].failed.items()]
        about["unfinished"] = [one._asdict() for one in stuck[0].unfinished]
        about["down"] = [
            {"between": list(link.between), "at_s": link.at}
            for link in trouble.links
            if link.share == 0 and link.at <= stuck[0].elapsed and link.lasting == inf
        ]
    return about


def _reasons(traces: Sequence[Trace]) -> Entry:
    """Whom the ranks waited for, and what the end waited for; means over all runs, the largest first."""
    paths = [critical_path(trace) for trace in traces]
    late = _mean([waits(trace).items() for trace in traces])
    by_peer = _mean([((peer, seconds) for (_, peer), seconds in late.items())])
    legs = _mean([((_name(leg.name, leg.src, leg.dst), leg.seconds) for leg in path) for path in paths])
    return {
        "waited_for": [
            {"rank": peer, "s": seconds, "by": [{"rank": r, "s": s} for (r, p), s in late.items() if p == peer][:SHOWN]}
            for peer, seconds in islice(by_peer.items(), SHOWN)
        ],
        "critical_path": [{"what": what, "s": seconds} for what, seconds in islice(legs.items(), SHOWN)],
        "critical_path_s": fmean(sum(leg.seconds for leg in path) for path in paths),
    }


def _mean(runs: Sequence[Iterable[tuple[Key, float]]]) -> dict[Key, float]:
    """Sums by key of each run, and their means over the runs, the largest first; of equal ones the lowest key."""
    sums: defaultdict[Key, float] = defaultdict(float)
    for run in runs:
        for key, seconds in run:
            sums[key] += seconds / len(runs)
    return dict(sorted(sums.items(), key=lambda item: (-float(f"{item[1]:.9e}"), item[0])))  # but for rounding


def _name(name: str, src: int, dst: int) -> str:
    return f"messages {src} to {dst}" if name == "message" else f"{name} of rank {src}"
