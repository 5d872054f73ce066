"""Find the bottleneck of a run: stuck ranks, compute, a slow or a full link, latency, or none.

The rules use only recorded times, so they also work for unknown networks.

The two directions of a link are examined together, as a ``Cable``. A cable is *slow* if it is busy for more than a
tenth of the time, but its peak load is below three quarters of the usual peak. It is *full* if its use is close to the
highest use of all cables. Slow or full cables are reported only if they are at most about a quarter of those in use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from collectives.records.columns import Floats, Ints
from collectives.records.link_loads import LinkLoads, link_loads
from collectives.records.spans import PHASES
from collectives.records.trace import ProgramFailure, Trace
from collectives.records.waits import critical_path, fullest_link
from collectives.units import format_bandwidth, format_time

IN_USE = 0.005  # share of a link pair's bandwidth; a pair with a lower use is not in use
BUSY = 0.1  # share of the time; a link pair that is less busy may wait for other pairs
SLOW_PEAK = 0.75  # slow if the peak is lower, as a share of the usual peak
SAME_PEAK = 1.1  # factor on the slowest peak, up to which another link pair is as slow
MORE_LOADED = 1.1  # factor on the load of another link pair, from which a pair limits a message
FULL = 0.9  # share of the highest use, from which another link pair is as full
FULL_USE = 0.25  # share of the usual peak; a link with a lower use is not a bottleneck
BOTTLENECK = 0.1  # minimum share of the critical path that waits only for a bottleneck
LATE = 0.4  # minimum share of latency in the critical path
COMPUTING = 0.5  # minimum share of computing in the time of a training run
ALL = 0.995  # a larger share is described as "all"
NAMED = 2  # maximum number of pairs of ranks that are named


@dataclass(frozen=True)
class Cable:
    """A full-duplex link: the two directed links between a pair of nodes, or one if the other does not exist."""

    links: tuple[int, ...]  # indices in the Trace
    name: str
    bandwidth: float  # nominal bytes per second
    use: float  # share of the capacity that is used over the whole run; the larger of both directions
    busy: float  # share of the time during which a link carries a message, added for both directions; at most 1
    peak: float  # highest rate, as a share of the bandwidth
    most: int  # maximum number of messages at the same time
    blame: float = 0.0  # seconds of the critical path during which it was the fullest pair of a message
    crossing: float = 0.0  # seconds of the critical path spent in messages that cross it
    sole: float = 0.0  # seconds of the critical path that wait only for named pairs


@dataclass(frozen=True)
class RunLimits:
    """The bottleneck of a run as text, and all full-duplex links in use, starting with those that the text names."""

    kind: Literal["stuck", "computing", "slow", "full", "latency", "none", "unknown"]
    heading: str
    sentence: str
    cables: tuple[Cable, ...] = ()
    standing_out: int = 0  # number of link pairs that the text names


def find_limits(trace: Trace, loads: LinkLoads | None = None) -> RunLimits:
    """Return the bottleneck of a run. ``kind`` is ``stuck`` if a rank does not finish.

    In a training run, ``kind`` is ``computing`` if compute takes more than half of the time. Otherwise, it is the
    bottleneck of the network, or ``unknown`` if the trace has no links or no messages.
    """
    if not trace.is_complete:
        return RunLimits("stuck", *_stuck_words(trace))
    phases = phase_shares(trace)
    if not phases:
        return _find_network_limits(trace, loads)
    if sum(share for name, share in phases.items() if name != "sync") > COMPUTING:
        return RunLimits("computing", "Computing, not the network", _computing_words(phases))
    limits, sync = _find_network_limits(trace, loads), phases.get("sync", 0.0)
    return replace(limits, sentence=f"Gradient sync takes {_percent(sync)} of the time. {limits.sentence}")


def phase_shares(trace: Trace) -> dict[str, float]:
    """Return each training phase's share of the time of all ranks, longest first. Empty if ``trace`` is no training."""
    spans, total = trace.spans, trace.world_size * trace.elapsed
    if not trace.title.startswith("training/") or not total:
        return {}
    shares = {}
    for name in spans.names:
        if name in PHASES:
            phase_spans = spans.select(spans.named(name))
            shares[name] = float((phase_spans.end - phase_spans.begin).sum()) / total
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _computing_words(phases: Mapping[str, float]) -> str:
    computing = {name: share for name, share in phases.items() if name != "sync"}
    longest = next(iter(computing))
    words = f"{_percent(sum(computing.values()))} of the time is computing, {_percent(computing[longest])} {longest}"
    sync = phases.get("sync", 0.0)
    saving = f"; gradient sync takes {_percent(sync)}, the most that a faster network can save" if sync else ""
    return f"{words}{saving}."


def _find_network_limits(trace: Trace, loads: LinkLoads | None) -> RunLimits:
    if not trace.links or not len(trace.messages):
        return RunLimits("unknown", "No links are known", "The trace does not record the links that messages cross.")
    loads = loads or link_loads(trace)
    cables = _find_cables(trace, loads)
    slow, full = _slow(trace, loads, cables), _full(cables)
    standing = {cable.links for cable in slow or full}
    cables, latency = _blame(trace, loads, cables, standing)
    helps = sum(cable.sole for cable in cables if cable.links in standing) >= BOTTLENECK * trace.elapsed
    if not helps and not slow:
        standing = set()
    out = [cable for cable in cables if cable.links in standing]
    ordered = (*out, *(cable for cable in cables if cable.links not in standing))
    if slow:
        return RunLimits("slow", *_slow_words(trace, loads, out), ordered, len(out))
    if full and helps:
        return RunLimits("full", *_full_words(trace, out, cables), ordered, len(out))
    if latency > LATE * trace.elapsed:
        share = _percent(latency / trace.elapsed)
        words = f"{share} of the critical path is latency: fewer, larger messages would help; wider links would not."
        return RunLimits("latency", "Latency, not bandwidth", words, ordered)
    if not cables:
        words = f"No link of known bandwidth uses more than {IN_USE:.1%} of its capacity."
        return RunLimits("unknown", "All links are nearly idle", words)
    if full:
        words = f"The busiest link is {cables[0].name}, at {_used(cables[0])} of its capacity over the whole run. "
        return RunLimits(
            "none", "No single link is the bottleneck", words + "Doubling its bandwidth would help little.", ordered
        )
    heading = "Bandwidth-bound" if cables[0].use > 0.9 else "No single bottleneck"
    return RunLimits("none", heading, _even_words(cables), ordered)


def _find_cables(trace: Trace, loads: LinkLoads) -> list[Cable]:
    in_use = [trace.links[number] for number in np.flatnonzero(loads.use > IN_USE).tolist()]
    both = {ends: list[int]() for link in in_use for ends in ((link.src, link.dst), (link.dst, link.src))}
    for number, link in enumerate(trace.links):  # most links may be idle
        if (link.src, link.dst) in both:
            both[min((link.src, link.dst), (link.dst, link.src))].append(number)
    ranks = {host: f"rank {rank}" for rank, host in enumerate(trace.hosts)}
    cables = []
    for numbers in sorted(numbers for numbers in both.values() if numbers):
        use, peak, most = (column[numbers].max() for column in (loads.use, loads.peak, loads.most))
        busy = min(1.0, loads.busy[numbers].sum())
        bandwidth, name = trace.links[numbers[0]].bandwidth, _cable_name(trace, numbers, ranks)
        cables.append(Cable(tuple(numbers), name, bandwidth, float(use), float(busy), float(peak), int(most)))
    return sorted(cables, key=lambda cable: (-cable.use, -cable.peak))


def _slow(trace: Trace, loads: LinkLoads, cables: Sequence[Cable]) -> list[Cable]:
    if not cables:
        return []
    usual = _usual_peak(cables)
    slow = [cable for cable in cables if cable.busy > BUSY and cable.peak < SLOW_PEAK * usual]
    slow = _not_limited_elsewhere(trace, loads, slow, usual)
    if not slow or not _are_few(slow, cables):
        return []
    worst = min(cable.peak for cable in slow)
    return [cable for cable in slow if cable.peak < SAME_PEAK * worst]


def _usual_peak(cables: Sequence[Cable]) -> float:
    return float(np.sort([cable.peak for cable in cables])[len(cables) // 2])


def _not_limited_elsewhere(trace: Trace, loads: LinkLoads, slow: Sequence[Cable], usual: float) -> list[Cable]:
    """Return the ``slow`` cables whose messages are not limited by another link for most of their time.

    Another link limits a message if it has nearly the ``usual`` load, or if it is also in ``slow`` and has a higher
    load.
    """
    if not slow:
        return []
    suspect = np.zeros(len(loads.use), np.bool_)
    suspect[[link for cable in slow for link in cable.links]] = True
    message, link = loads.routes.crossings(trace.messages.route)
    concerned = np.zeros(len(trace.messages), np.bool_)
    concerned[message[suspect[link]]] = True
    message, link = message[concerned[message]], link[concerned[message]]
    seconds = trace.messages.end - trace.messages.begin
    share = _shares(loads, link, trace.messages.begin[message], trace.messages.end[message])
    load, is_limited, unlimited = np.zeros(len(seconds)), np.zeros(len(seconds), np.bool_), list[Cable]()
    for cable in slow:
        is_own = np.isin(link, cable.links)
        mine = np.unique(message[is_own])
        load[message[is_own]] = share[is_own]
        is_limited[mine] = False
        on_way = np.flatnonzero(np.isin(message, mine) & ~is_own)
        more = suspect[link[on_way]] & (share[on_way] > MORE_LOADED * load[message[on_way]])
        is_limited[message[on_way[(share[on_way] >= FULL * usual) | more]]] = True
        if seconds[mine[is_limited[mine]]].sum() <= seconds[mine[~is_limited[mine]]].sum():
            unlimited.append(cable)
    return unlimited


def _shares(loads: LinkLoads, link: Ints, begin: Floats, end: Floats) -> Floats:
    shares, order = np.zeros(len(link)), np.argsort(link, kind="stable")
    for same in np.split(order, np.flatnonzero(np.diff(link[order])) + 1):
        if len(same):
            shares[same] = loads.mean_share(int(link[same[0]]), begin[same], end[same])
    return shares


def _full(cables: Sequence[Cable]) -> list[Cable]:
    if len(cables) < 2:
        return []
    full = [cable for cable in cables if cable.use >= FULL * cables[0].use]
    is_used = cables[0].use > FULL_USE * _usual_peak(cables)
    return full if _are_few(full, cables) and is_used else []


def _are_few(some: Sequence[Cable], cables: Sequence[Cable]) -> bool:
    # a quarter of the link pairs in use are few
    return len(some) <= max(1, 0.25 * len(cables)) or (len(some) == 2 and len(cables) >= 6)


def _blame(
    trace: Trace, loads: LinkLoads, cables: Sequence[Cable], standing: set[tuple[int, ...]]
) -> tuple[list[Cable], float]:
    """Return the cables with their seconds on the critical path, and the total latency on this path in seconds.

    ``standing`` contains the links of each cable that the text names. A message counts for ``sole`` of its fullest
    cable if the text names this cable, and if all unnamed cables on the message's route are less loaded.
    """
    owner = {link: number for number, cable in enumerate(cables) for link in cable.links}
    blame, crossing, sole, latency = np.zeros(len(cables)), np.zeros(len(cables)), np.zeros(len(cables)), 0.0
    routes = trace.messages.route
    for leg in critical_path(trace):
        if leg.name != "message":
            continue
        route, begin, end = loads.routes[routes[leg.number]], leg.begin, leg.end
        delay = min(sum(trace.links[link].latency for link in route), end - begin)
        latency += delay
        used = [link for link in route if link in owner]
        for cable in {owner[link] for link in used}:
            crossing[cable] += end - begin
        if used:
            fullest = fullest_link(loads, used, begin, end)
            blame[owner[fullest]] += end - begin - delay
            others = [link for link in used if cables[owner[link]].links not in standing]
            shares = [float(loads.mean_share(link, begin, end)) for link in (fullest, *others)]
            if fullest not in others and all(share < FULL * shares[0] for share in shares[1:]):
                sole[owner[fullest]] += end - begin - delay
    blamed = [
        replace(cable, blame=float(seconds), crossing=float(over), sole=float(alone))
        for cable, seconds, over, alone in zip(cables, blame, crossing, sole, strict=True)
    ]
    return blamed, latency


def _cable_name(trace: Trace, numbers: Sequence[int], ranks: Mapping[str, str]) -> str:
    link = trace.links[numbers[0]]
    a, b = ranks.get(link.src, link.src), ranks.get(link.dst, link.dst)
    if len(numbers) > 1 and link.dst in ranks and link.src not in ranks:
        a, b = b, a
    return f"{a} {'↔' if len(numbers) > 1 else '→'} {b}"


def _stuck_words(trace: Trace) -> tuple[str, str]:
    if trace.failure is not None and trace.failure.circle:
        return _circle_words(trace.failure)
    if trace.failure is not None:
        where = f"{trace.failure.where}: " if trace.failure.where else ""
        step = "at its end" if trace.failure.step is None else f"in step {trace.failure.step}"
        return f"Program error at rank {trace.failure.rank}, {step}", f"{where}{trace.failure.text}"
    waits = sorted(trace.unfinished, key=lambda wait: wait.since)
    words = [
        f"Rank {wait.rank} waits in step {wait.step} of its program "
        f"to {'send to' if wait.sends else 'receive from'} rank {wait.peer}."
        for wait in waits[:2]
    ]
    others = len({wait.rank for wait in waits} - {wait.rank for wait in waits[:2]})
    words += [f"{others} more {'rank also waits' if others == 1 else 'ranks also wait'}."] if others else []
    failed = [f"{rank} at {format_time(time)}" for rank, time in sorted(trace.failed.items(), key=lambda item: item[1])]
    if not failed:
        return "The run never ends", " ".join(words)
    heading = f"Rank {failed[0].split()[0]} fails" if len(failed) == 1 else f"{len(failed)} ranks fail"
    return heading, " ".join([f"Rank {', '.join(failed)}: everything that depends on it is blocked.", *words])


def _circle_words(failure: ProgramFailure) -> tuple[str, str]:
    """Return a heading and a sentence about a deadlock. The sentence contains the first rank's wait, and advice.

    >>> waits = "deadlock: rank 0 waits for rank 1; rank 1 waits for rank 0. Post both in one step"
    >>> _circle_words(ProgramFailure(0, 0, "my.py:9", waits, circle=(0, 1)))
    ('2 ranks wait for each other', 'my.py:9: deadlock: rank 0 waits for rank 1. Post both in one step')
    """
    first, _, others = failure.text.partition("; ")
    _, _, advice = others.rpartition(". ")
    where = f"{failure.where}: " if failure.where else ""
    return f"{len(failure.circle)} ranks wait for each other", f"{where}{first}. {advice}"


def _slow_words(trace: Trace, loads: LinkLoads, slow: Sequence[Cable]) -> tuple[str, str]:
    cable = slow[0]
    reached = format_bandwidth(float(f"{cable.peak * cable.bandwidth:.2g}"))
    words = f"{'It' if len(slow) == 1 else cable.name} behaves like a link of {reached}, "
    words += f"not {format_bandwidth(cable.bandwidth)}, in use {_share(cable.busy, 'all')} the time."
    if cable.crossing:
        share = _share(cable.crossing / trace.elapsed, "All of")
        words += f" {share} the critical path crosses it: {_who_cross(trace, loads, cable)}."
    return f"{cable.name} is slow" if len(slow) == 1 else f"{len(slow)} links are slow", words


def _share(share: float, all_of_it: str) -> str:
    return all_of_it if share > ALL else f"{_percent(share)} of"


def _who_cross(trace: Trace, loads: LinkLoads, cable: Cable) -> str:
    message, link = loads.routes.crossings(trace.messages.route)
    mine = message[np.isin(link, cable.links)]
    numbers = np.unique(trace.messages.src[mine].astype(np.int64) * trace.world_size + trace.messages.dst[mine])
    pairs = [divmod(number, trace.world_size) for number in numbers.tolist()]
    if len(pairs) > NAMED:
        return f"{len(pairs)} pairs of ranks"
    return "rank " + ", and ".join(f"{src} to {dst}" for src, dst in pairs)


def _full_words(trace: Trace, full: Sequence[Cable], cables: Sequence[Cable]) -> tuple[str, str]:
    cable, few = full[0], len(full)
    rates = [link.bandwidth for link in cables]
    usual = max(dict.fromkeys(rates), key=rates.count)
    is_thin = cable.bandwidth < 0.95 * usual
    where = f", where most have {format_bandwidth(usual)}" if is_thin else ", like the others" if few == 1 else ""
    whom = "" if few == 1 else f"{cable.name} and {few - 1} more: "
    words = f"{whom}{format_bandwidth(cable.bandwidth)}{'' if few == 1 else ' each'}{where}."
    words += f" {_used(cable)} of {'its' if few == 1 else 'their'} capacity is used over the whole run"
    blame = sum(link.blame for link in full) / trace.elapsed
    if blame > 0.05:
        words += f"; {_percent(min(1.0, blame))} of the critical path waits for {'it' if few == 1 else 'them'}"
    words += "."
    if cable.most > 1:
        words += f" Up to {cable.most} messages share {'it' if few == 1 else 'one of them'}."
    return (
        f"{cable.name} is the bottleneck" if few == 1 else f"{few} of {len(cables)} links are the bottleneck"
    ), words


def _even_words(cables: Sequence[Cable]) -> str:
    top = cables[0].use
    even = sum(cable.use >= FULL * top for cable in cables)
    words = f"{even} of {len(cables)} links are equally busy, at {_used(cables[0])} of their capacity."
    if len(cables) == 1:
        words = f"One link is in use, at {_used(cables[0])} of its capacity."
    return words + (" Only faster links or fewer bytes would help." if top > 0.9 else "")


def _used(cable: Cable) -> str:
    return _percent(min(1.0, cable.use))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
