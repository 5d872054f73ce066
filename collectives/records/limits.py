"""What limits a run: ranks that are stuck, a cable that is slow, one that sets the pace, latency, or none of them.

The rule looks at what happened only, so it serves a simulated network whose troubles are known, to see whether they
show, as well as one whose troubles nobody knows. Report, terminal and player all ask here.

A cable, both directions of a link, is *slow* if it is busy for more than a tenth of the time and yet never carries
three quarters of the share of its bandwidth that cables usually reach. It is *full* if no other is used much more. It
stands out only if at most a quarter of the cables in use are like it. ``tests/test_limits.py`` tries the rule on
hundreds of random networks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from collectives.records.link_loads import LinkLoads, link_loads
from collectives.records.message_arrays import MessageArrays, message_arrays
from collectives.records.path_parts import fullest_link
from collectives.records.trace import Trace
from collectives.records.waits import critical_path
from collectives.units import format_bandwidth, format_time

LEAST_USE = 0.005  # of a cable's bandwidth: below, it is not in use
BUSY = 0.1  # of the time: what is less busy may wait for others
SLOW_PEAK = 0.75  # of the usual peak
SAME_PEAK = 1.1  # times the slowest peak: as slow
MORE_LOADED = 1.1  # times the load of another cable
FULL = 0.9  # of the greatest use: as full
FULL_USE = 0.25  # of its bandwidth: what is used less does not set the pace
FEW = 0.25  # of the cables in use
LATE = 0.4  # of the critical path


@dataclass(frozen=True)
class Cable:
    """Both directions of a link, or the one that there is, with the figures of the busier one."""

    links: tuple[int, ...]  # numbers in the Trace
    name: str
    bandwidth: float  # nominal, bytes per second
    use: float
    busy: float
    peak: float
    most: int
    blame: float = 0.0  # seconds of the critical path for which it was the fullest link of a message
    crossing: float = 0.0  # seconds of the critical path of messages that cross it


@dataclass(frozen=True)
class Limits:
    """What limits a run, in words, with the cables in use: those that stand out first, then by use."""

    kind: Literal["stuck", "slow", "full", "latency", "none", "unknown"]
    heading: str
    sentence: str
    cables: tuple[Cable, ...] = ()
    standing_out: int = 0  # how many of the cables


def find_limits(trace: Trace, messages: MessageArrays | None = None, loads: LinkLoads | None = None) -> Limits:
    """Return what limits a run: ``stuck`` if it never ends, ``unknown`` if no links are known, as of measured ones.

    >>> find_limits(Trace("broadcast/naive", "measured", 2, 1.0)).kind
    'unknown'
    """
    if not trace.is_complete:
        return Limits("stuck", *_stuck_words(trace))
    if not trace.links or not len(trace.messages):
        return Limits("unknown", "No links are known", "Which links the messages crossed was not recorded.")
    messages = messages or message_arrays(trace)
    loads = loads or link_loads(trace, messages)
    cables = _find_cables(trace, loads)
    slow, full = _slow(messages, loads, cables), _full(cables)
    standing = slow or full
    cables, latency = _blame(trace, messages, loads, cables)
    out = [cable for cable in cables if cable.links in {one.links for one in standing}]
    ordered = (*out, *(cable for cable in cables if cable not in out))
    if slow:
        return Limits("slow", *_slow_words(trace, out), ordered, len(out))
    if full:
        return Limits("full", *_full_words(trace, out, cables), ordered, len(out))
    if latency > LATE * trace.elapsed:
        share = _percent(latency / trace.elapsed)
        words = f"{share} of the critical path is latency: fewer, larger messages would help; wider links would not."
        return Limits("latency", "Latency, not bandwidth", words, ordered)
    if not cables:
        return Limits("unknown", "No link is in use", "No message crosses a link whose bandwidth is known.")
    return Limits("none", "No link stands out", _even_words(cables), ordered)


def critical_messages(trace: Trace, messages: MessageArrays) -> list[int]:
    """Return which messages are on the critical path, in the order of the path.

    >>> from collectives.records.message_arrays import Message
    >>> trace = Trace("broadcast/naive", "predicted", 2, 1.0, [Message(0, 1, 0, 0, 8, 0.0, 1.0)])
    >>> critical_messages(trace, message_arrays(trace))
    [0]
    """
    return [leg.number for leg in critical_path(trace) if leg.name == "message"]


def _find_cables(trace: Trace, loads: LinkLoads) -> list[Cable]:
    """Return the cables in use, the most used first."""
    both: dict[tuple[str, ...], list[int]] = {}
    for number, link in enumerate(trace.links):
        both.setdefault(tuple(sorted((link.src, link.dst))), []).append(number)
    ranks = {host: f"rank {rank}" for rank, host in enumerate(trace.hosts)}
    cables = []
    for numbers in both.values():
        use, peak, most = (column[numbers].max() for column in (loads.use, loads.peak, loads.most))
        busy = min(1.0, loads.busy[numbers].sum())
        if use > LEAST_USE:
            bandwidth = trace.links[numbers[0]].bandwidth
            name = _cable_name(trace, numbers, ranks)
            cables.append(Cable(tuple(numbers), name, bandwidth, float(use), float(busy), float(peak), int(most)))
    return sorted(cables, key=lambda cable: (-cable.use, -cable.peak))


def _slow(messages: MessageArrays, loads: LinkLoads, cables: Sequence[Cable]) -> list[Cable]:
    """Return the slowest cables where a few are slow, else none."""
    if not cables:
        return []
    usual = _usual_peak(cables)
    slow = [cable for cable in cables if cable.busy > BUSY and cable.peak < SLOW_PEAK * usual]
    slow = _not_held_back(messages, loads, slow, usual)
    if not slow or not _are_few(slow, cables):
        return []
    worst = min(cable.peak for cable in slow)
    return [cable for cable in slow if cable.peak < SAME_PEAK * worst]


def _usual_peak(cables: Sequence[Cable]) -> float:
    return float(np.sort([cable.peak for cable in cables])[len(cables) // 2])


def _not_held_back(messages: MessageArrays, loads: LinkLoads, slow: Sequence[Cable], usual: float) -> list[Cable]:
    """Return the cables whose messages were not held back elsewhere.

    A message was, if on its way there is a link as loaded as links usually get, or a cable that looks slow and is more
    loaded than this one.
    """
    suspect = {link for cable in slow for link in cable.links}
    message, link = messages.crossings()
    found = []
    for cable in slow:
        mine = np.isin(link, cable.links)
        held = free = 0.0
        for index, own in zip(message[mine], link[mine], strict=True):
            route = messages.routes[messages.route[index]]
            begin, end = messages.begin[index], messages.end[index]
            load = float(loads.mean_share(own, begin, end))
            others = [
                (float(loads.mean_share(other, begin, end)), other) for other in route if other not in cable.links
            ]
            is_held = any(
                share >= FULL * usual or (other in suspect and share > MORE_LOADED * load) for share, other in others
            )
            held += (end - begin) * is_held
            free += (end - begin) * (not is_held)
        if held <= free:
            found.append(cable)
    return found


def _full(cables: Sequence[Cable]) -> list[Cable]:
    """Return the cables that are used most where they are few and far from idle, else none."""
    if len(cables) < 2:
        return []
    full = [cable for cable in cables if cable.use >= FULL * cables[0].use]
    is_used = cables[0].use > FULL_USE * _usual_peak(cables)
    return full if _are_few(full, cables) and is_used else []


def _are_few(some: Sequence[Cable], cables: Sequence[Cable]) -> bool:
    """Return whether a few cables are as said; two that no message tells apart are few among three times as many."""
    return len(some) <= max(1, FEW * len(cables)) or (len(some) == 2 and len(cables) >= 6)


def _blame(
    trace: Trace, messages: MessageArrays, loads: LinkLoads, cables: Sequence[Cable]
) -> tuple[list[Cable], float]:
    """Return the cables with their seconds of the critical path, and the seconds of it that are latency."""
    owner = {link: number for number, cable in enumerate(cables) for link in cable.links}
    blame, crossing, latency = np.zeros(len(cables)), np.zeros(len(cables)), 0.0
    for index in critical_messages(trace, messages):
        route = messages.routes[messages.route[index]]
        begin, end = float(messages.begin[index]), float(messages.end[index])
        delay = min(sum(trace.links[link].latency for link in route), end - begin)
        latency += delay
        used = [link for link in route if link in owner]
        for cable in {owner[link] for link in used}:
            crossing[cable] += end - begin
        if used:
            blame[owner[fullest_link(loads, used, begin, end)]] += end - begin - delay
    found = [
        replace(cable, blame=float(seconds), crossing=float(over))
        for cable, seconds, over in zip(cables, blame, crossing, strict=True)
    ]
    return found, latency


def _cable_name(trace: Trace, numbers: Sequence[int], ranks: Mapping[str, str]) -> str:
    """Return the name of a cable, such as ``rank 0 ↔ s0``; ``ranks`` has the names of hosts."""
    link = trace.links[numbers[0]]
    a, b = ranks.get(link.src, link.src), ranks.get(link.dst, link.dst)
    if len(numbers) > 1 and link.dst in ranks and link.src not in ranks:
        a, b = b, a
    return f"{a} {'↔' if len(numbers) > 1 else '→'} {b}"


def _stuck_words(trace: Trace) -> tuple[str, str]:
    """Return where a program goes wrong, which rank failed, or which ranks wait for each other and how many more."""
    if trace.failure is not None:
        where = f"{trace.failure.where}: " if trace.failure.where else ""
        return f"Rank {trace.failure.rank} goes wrong in step {trace.failure.step + 1}", f"{where}{trace.failure.text}"
    waits = sorted(trace.unfinished, key=lambda wait: wait.since)
    words = [
        f"Rank {wait.rank} waits in step {wait.step + 1} "
        f"to {'send to' if wait.sends else 'receive from'} rank {wait.peer}."
        for wait in waits[:2]
    ]
    others = len({wait.rank for wait in waits} - {wait.rank for wait in waits[:2]})
    words += [f"{others} more {'rank waits' if others == 1 else 'ranks wait'} for them."] if others else []
    failed = [f"{rank} at {format_time(time)}" for rank, time in sorted(trace.failed.items(), key=lambda item: item[1])]
    if not failed:
        return "The run never ends", " ".join(words)
    heading = f"Rank {failed[0].split()[0]} fails" if len(failed) == 1 else f"{len(failed)} ranks fail"
    return heading, " ".join([f"Rank {', '.join(failed)}: nothing that needs it goes on.", *words])


def _slow_words(trace: Trace, slow: Sequence[Cable]) -> tuple[str, str]:
    cable = slow[0]
    rate = format_bandwidth(cable.bandwidth)
    words = f"Never more than {_percent(cable.peak)} of its {rate}, though in use {_percent(cable.busy)} of the time."
    if cable.crossing:
        words += f" {_percent(min(1.0, cable.crossing / trace.elapsed))} of the critical path crosses it."
    if len(slow) == 1:
        return f"{cable.name} is slow", words
    return f"{len(slow)} links are slow", f"{cable.name} and {len(slow) - 1} more. {words}"


def _full_words(trace: Trace, full: Sequence[Cable], cables: Sequence[Cable]) -> tuple[str, str]:
    cable, few = full[0], len(full)
    rates = [one.bandwidth for one in cables]
    usual = max(dict.fromkeys(rates), key=rates.count)
    is_thin = cable.bandwidth < 0.95 * usual
    where = f", where most have {format_bandwidth(usual)}" if is_thin else ", like the others" if few == 1 else ""
    whom = "" if few == 1 else f"{cable.name} and {few - 1} more: "
    words = f"{whom}{format_bandwidth(cable.bandwidth)}{'' if few == 1 else ' each'}{where}."
    words += f" {_percent(cable.use)} of what {'it' if few == 1 else 'each'} could carry in the whole run"
    blame = sum(one.blame for one in full) / trace.elapsed
    if blame > 0.05:
        words += f"; {_percent(min(1.0, blame))} of the critical path waits for {'it' if few == 1 else 'them'}"
    words += "."
    if cable.most > 1:
        words += f" Up to {cable.most} messages share it."
    return (f"{cable.name} sets the pace" if few == 1 else f"{few} of {len(cables)} links set the pace"), words


def _even_words(cables: Sequence[Cable]) -> str:
    top = cables[0].use
    even = sum(cable.use >= FULL * top for cable in cables)
    words = f"{even} of {len(cables)} links are equally busy, {_percent(top)} of what they could carry"
    if len(cables) == 1:
        words = f"One link is in use, {_percent(top)} of what it could carry"
    return words + (": the network is used to the full." if top > 0.9 else ".")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
