"""Traces of Ringlab's own runs, message by message: a link that is thin, a host whose links all are, one that loses."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median

import numpy as np

from collectives.records.trace import Trace
from simcomm.diagnosis.evidence.causes import Cause
from simcomm.diagnosis.evidence.expectation import DiagnosedCase
from simcomm.diagnosis.evidence.facts import BenchedRow, FilePlace, RunTrace

TELLING_BYTES = 1024  # of a message that tells of a rate
THIN = 0.65  # of the usual rate
LATE = 4.0  # times the usual time of a message
SLOWER_THAN_CALIBRATED = 1.5  # times: from there on it is no drift
OFTEN_LATE = 0.02  # share of a rank's messages: from here on it loses them


def find_thin_links(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield the rank all of whose messages are slow, else the pair of ranks."""
    for found in case.facts.of(RunTrace):
        seconds = pair_seconds(found.trace)
        rates = {pair: 1 / float(np.quantile(each, 0.25)) for pair, each in seconds.items() if len(each)}
        if len(rates) < 3:
            continue
        usual = median(rates.values())
        slow = {pair for pair, rate in rates.items() if rate < THIN * usual}
        slow = {
            pair for pair in slow if pair[::-1] in slow or pair[::-1] not in rates
        } or slow  # a cable is slow both ways
        if not slow:
            continue
        factor = usual / min(rates[pair] for pair in slow)
        yield from _name_slow(found, slow, rates, factor)


def pair_seconds(trace: Trace) -> Mapping[tuple[int, int], list[float]]:
    """Return the seconds that each byte took, of each message of sane size, by its pair of ranks."""
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    messages = trace.messages
    columns = (messages.src, messages.dst, messages.nbytes, messages.begin, messages.end)
    for source, target, nbytes, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        if nbytes >= TELLING_BYTES and end > begin and source != target:
            found[source, target].append((end - begin) / nbytes)
    return found


def _name_slow(
    found: RunTrace, slow: set[tuple[int, int]], rates: Mapping[tuple[int, int], float], factor: float
) -> Iterator[Cause]:
    """Yield the host that all slow pairs have in common and whose pairs are mostly slow; else the pairs."""
    trace = found.trace
    for rank in range(trace.world_size):
        sends = [pair in slow for pair in rates if pair[0] == rank]
        receives = [pair in slow for pair in rates if pair[1] == rank]
        elsewhere = sum(rank not in pair for pair in slow)
        if _mostly(sends) and _mostly(receives) and elsewhere < 0.3 * len(slow):
            host = trace.hosts[rank] if rank < len(trace.hosts) else f"rank {rank}"
            yield Cause(
                "slow-host",
                f"what rank {rank} ({host}) sends and receives is {factor:.2g} times slower than between others",
                found.place,
                f"look at the link and load of {host}",
                0.9,
                factor,
            )
            return
    pairs = sorted(slow, key=rates.__getitem__)
    named = ", ".join(f"{source} to {target}" for source, target in pairs[:4])
    hosts = [
        host
        for host in dict.fromkeys(trace.hosts[rank] for pair in pairs[:4] for rank in pair if rank < len(trace.hosts))
        if host
    ]
    named += f" ({', '.join(hosts)})" * bool(hosts)
    yield Cause(
        "slow-link",
        f"the way from rank {named} is {factor:.2g} times slower than the others",
        found.place,
        "look at the links that only they use",
        0.9,
        factor,
    )


def _mostly(slow: list[bool]) -> bool:
    """Return whether more than half of a rank's pairs are slow.

    >>> _mostly([True, False, False]), _mostly([True])
    (False, True)
    """
    return sum(slow) > len(slow) / 2


def find_late_messages(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield the rank whose messages are now and then many times later than usual, as what is lost and sent again."""
    for found in case.facts.of(RunTrace):
        seconds = pair_seconds(found.trace)
        late: dict[int, list[bool]] = defaultdict(list)
        for (source, target), each in seconds.items():
            usual = median(each)
            for one in each:
                late[source].append(one > LATE * usual)
                late[target].append(one > LATE * usual)
        shares = {rank: sum(each) / len(each) for rank, each in late.items() if len(each) >= 8}
        if len(shares) < 2:
            continue
        worst = max(shares, key=shares.__getitem__)
        others = median(share for rank, share in shares.items() if rank != worst)
        if shares[worst] > OFTEN_LATE and shares[worst] > 1.6 * others:
            yield _lossy(found.place, found.trace, worst, shares[worst])


def _lossy(place: FilePlace, trace: Trace, rank: int, share: float) -> Cause:
    host = trace.hosts[rank] if rank < len(trace.hosts) else ""
    return Cause(
        "packet-loss",
        f"{share:.0%} of the messages of rank {rank}{f' ({host})' * bool(host)} take more than {LATE:g} times as long "
        f"as usual: its link loses packets, which are sent again",
        place,
        "look at drops and errors of its interface (ethtool -S, tc -s qdisc), its cable and its switch port",
        0.85,
    )


def find_slow_bench(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that ``bench`` took far longer than the calibration of the same machine says."""
    rows = case.facts.of(BenchedRow)
    ratios = [one.measured / one.predicted for one in rows]
    if len(rows) >= 2 and median(ratios) > SLOWER_THAN_CALIBRATED:
        worst = rows[int(np.argmax(ratios))]
        text = f"collectives take {median(ratios):.2g} times what the calibration of this machine says"
        remedy = "look at what else runs here; calibrate again where the machine has changed"
        yield Cause("slow-bench", text, worst.place, remedy, 0.7, median(ratios))


RULES = (find_thin_links, find_late_messages, find_slow_bench)
