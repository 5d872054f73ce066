"""Fit the TCP terms from a pair of hosts, without the collectives that they predict.

Each number comes from one kind of probe: overheads and CPU time from the smallest messages, which fit into a link's
burst; the send buffer from when large sends return; the window from TCP's data in flight. The piece that Linux passes
to a link at once is known: the rest of a message waits behind what others have passed on ("TCP small queues",
Documentation/networking/ip-sysctl.rst, tcp_limit_output_bytes). The goodput is not fitted, but computed from headers
and bandwidth. If the measured goodput differs by more than ``TOLERANCE``, something else limits the pair, and no
prediction is made.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from math import ceil, inf
from statistics import median
from typing import Any

from collectives.checks import MOST_SECONDS
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.calibration import Calibration, CrowdRound, PairProbes, SizeTimes
from collectives.transport import TcpTerms, Transport

LARGE = 4 << 20  # bytes: from here on a send has to wait for the send buffer
TOLERANCE = 0.01  # of the goodput that the specification gives, either way
HEADER = 66.0  # bytes a packet: 14 of Ethernet, 20 of IPv4 (RFC 791), 32 of TCP with time stamps (RFC 9293, RFC 7323)
INSIDE_MTU = 52.0  # of those, what counts as part of the MTU
# Payload of a TCP segment over what it takes on an Ethernet link: of MTU 1500 what headers leave, and beside those of
# ``HEADER`` 4 bytes of checksum, 8 of preamble and 12 of gap (IEEE 802.3).
TCP_GOODPUT = (1500 - INSIDE_MTU) / (1500 + 14 + 4 + 8 + 12)
PIECE = 65536 - 320  # bytes that Linux hands to a link in one piece: GSO_LEGACY_MAX_SIZE less MAX_TCP_HEADER


def borrow_transport(calibration: Calibration, ranks: int, given: Mapping[str, Any]) -> Transport:
    """Return this machine's software costs for other machines, with the ``given`` TCP terms replaced."""
    if calibration.pair is not None:
        fitted = fit_pair(calibration.pair, ranks).with_terms(given)
        return replace(fitted, source=f"calibrated {calibration.created}")
    return calibration.transport(1.0).with_terms(given) if given else calibration.transport(TCP_GOODPUT)


def fit_pair(probes: PairProbes, ranks: int | None = None) -> Transport:
    """Return the transport of a pair of hosts for ``ranks`` in total. Default: more ranks than cores.

    A smallest message in a chain takes the overhead, its post, and a core at its arrival and for its rank to continue.
    A chain of one also takes ``start`` and a receive-ready notification. A step in which both sides send takes
    ``exchange_overhead`` more. Data that arrives after a send returns was left in the send buffer.

    Raise InputError if the goodput does not match the links, and for incomplete probes.
    """
    _check_numbers(probes)
    _check_parts(probes)
    return _fit(probes, ranks)


def _check_numbers(probes: PairProbes) -> None:
    """Raise InputError for an impossible number."""
    left: list[object] = [*asdict(probes).items()]
    while left:
        one = left.pop()
        if isinstance(one, dict | list | tuple):
            left += one.items() if isinstance(one, dict) else one
        elif isinstance(one, int | float) and not abs(one) <= MOST_SECONDS:
            raise InputError(f"the probes of the pair of hosts have {quote(one)}; calibrate again")


def _check_parts(probes: PairProbes) -> None:
    """Raise InputError for probes that lack data for the fit."""
    small = min((nbytes for nbytes, _, _ in probes.chains), default=0)
    chains = [hops for nbytes, hops, _ in probes.chains if nbytes == small]
    arrived = _large_arrived(probes)
    sent = {nbytes for nbytes, _ in probes.send_done if nbytes >= LARGE}
    crowds = _crowds(probes)
    own = [{messages for messages, _ in one.own} for one in crowds if len(one.own) > 1]
    is_there = {
        "a bandwidth of at least 1 byte/s": probes.bandwidth >= 1,
        f"an MTU of more than {INSIDE_MTU:g} bytes": probes.mtu > INSIDE_MTU,
        "chains of the smallest messages, each with another number of hops": len(set(chains)) == len(chains) > 1,
        f"an exchange of {small} bytes, as the chains have": small in dict(probes.exchange),
        "messages of 1 MiB and more that arrive after different times": (
            len(arrived) > 1 and arrived[0][1] != arrived[-1][1]
        ),
        "sends of 4 MiB and more, each with its arrival": bool(sent) and sent <= dict(arrived).keys(),
        "steps of different numbers of messages": not crowds or len(dict(probes.at_once)) > 1,
        "collectives of gloo's own with different numbers of messages": all(len(counts) > 1 for counts in own),
        "a reduction of at least 1 byte": not probes.reduction or max(probes.reduction)[0] > 0,
    }
    for what, there in is_there.items():
        if not there:
            raise InputError(f"the probes of the pair of hosts lack {what}; calibrate again")


def _fit(probes: PairProbes, ranks: int | None) -> Transport:
    payload = probes.mtu - INSIDE_MTU
    rate = probes.bandwidth * payload / (payload + HEADER)
    _check_goodput(probes, rate)
    small = min(nbytes for nbytes, _, _ in probes.chains)
    hop, first = _chain(probes, small)
    on_wire = small + ceil(small / payload) * HEADER
    hop = max(0.0, hop - max(0.0, on_wire - probes.burst) / probes.bandwidth)
    post, arrival, wake = _processor(probes, hop)
    overhead = max(0.0, hop - post - arrival - wake)  # they may be all of a hop, but for rounding
    notification = min(overhead, max(0.0, first - hop - arrival))
    slower = probes.software
    own_share, own_start = _own(probes, post + arrival + wake / 2)
    terms = TcpTerms(
        start=slower * _start(probes, first - hop - arrival - notification, ranks),
        receive_ready_overhead=slower * notification,
        exchange_overhead=slower * max(0.0, _at(probes.exchange, small) - hop - post - arrival),
        cores=probes.cores or inf,
        post_cpu=slower * post,
        arrival_cpu=slower * arrival,
        wake_cpu=slower * wake,
        own_share=own_share,
        own_start=slower * own_start,
        send_buffer=_left_behind(probes, rate),
        window=float(probes.in_flight or probes.window),
        piece=PIECE // payload * payload,
        payload=payload,
        header=HEADER,
        burst=float(probes.burst),
    )
    nbytes, seconds = max(probes.reduction, default=(1, 0.0))
    gamma = slower * seconds / nbytes
    return Transport("gloo-tcp", slower * overhead, gamma=gamma, source="a pair of hosts", tcp=terms)


def _check_goodput(probes: PairProbes, rate: float) -> None:
    """Raise InputError unless the largest messages arrive at ``rate`` bytes/s."""
    (small, sooner), *_, (large, later) = _large_arrived(probes)
    found = (large - small) / (later - sooner)
    if abs(found / rate - 1) > TOLERANCE:
        raise InputError(
            f"the pair of hosts carries {found / 1e6:.4g} MB/s of data, but its links of "
            f"{probes.bandwidth * 8 / 1e6:.4g} Mbit/s should give {rate / 1e6:.4g} MB/s: more than {TOLERANCE:.0%} "
            "off, so that something else limits it; a busy machine, or a bandwidth that it cannot bear"
        )


def _large_arrived(probes: PairProbes) -> SizeTimes:
    """Return the arrival times in seconds of messages of at least 1 MiB, by size."""
    return sorted(point for point in probes.arrived if point[0] >= 1 << 20)


def _chain(probes: PairProbes, small: int) -> tuple[float, float]:
    """Return the seconds of a later hop of ``small`` bytes, and of a chain of one.

    The hop is the median of several estimates.
    """
    seconds = sorted((hops, found) for nbytes, hops, found in probes.chains if nbytes == small)
    further = [
        (later - sooner) / (many - few)
        for place, (few, sooner) in enumerate(seconds)
        for many, later in seconds[place + 1 :]
    ]
    return max(0.0, median(further)), seconds[0][1]


def _crowds(probes: PairProbes) -> list[CrowdRound]:
    """Return the rounds with more ranks than cores."""
    return [one for one in probes.crowds if one.ranks > probes.cores > 0]


def _processor(probes: PairProbes, hop: float) -> tuple[float, float, float]:
    """Return the core seconds to post a message, to receive it, and to continue after a wait.

    Each rank of a crowd, which keeps all cores busy, sends and receives. Both sides post a message, and it arrives, as
    does its notification; a rank waits once per step. So one more message in a step costs two posts and two arrivals,
    and a step of one message costs that plus one continuation. A post is the sender thread's time for one more message
    in a step. Without a crowd, all three are zero. Together they are at most a hop.
    """
    crowds = _crowds(probes)
    if not crowds:
        return 0.0, 0.0, 0.0
    step = median(probes.cores * one.step / one.ranks for one in crowds)
    further = median(probes.cores * one.further / one.ranks for one in crowds)
    both = min(max(0.0, min(further, step) / 2), hop)
    wake = min(max(0.0, step - 2 * both), hop - both)
    (few, sooner), *_, (many, later) = sorted(probes.at_once)
    post = min(max(0.0, (later - sooner) / (many - few)), both)
    return post, both - post, wake


def _start(probes: PairProbes, awake: float, ranks: int | None) -> float:
    """Return the core seconds before the first message of each of ``ranks`` ranks.

    Up to one rank per core, ranks wait awake: ``awake``. More ranks sleep, wake together, and take turns on the cores,
    each for the same time.
    """
    awake = max(0.0, awake)
    asleep = [probes.cores * one.waking / one.ranks for one in _crowds(probes)]
    if not asleep or (ranks is not None and ranks <= probes.cores):
        return awake
    return max(awake, median(asleep))


def _own(probes: PairProbes, both: float) -> tuple[float, float]:
    """Return the cost of a message in gloo's own collectives relative to ``both``, and their extra start in seconds.

    A barrier and an all_gather of many messages, each with its notification, keep all cores busy; both start in the
    same way. They post in C++, which takes no longer than in Python, but from a gloo thread, which the rank's thread
    wakes and awaits. The result is (1, 0) if not measured.
    """
    each, starts = [], []
    for one in _crowds(probes):
        if len(one.own) > 1:
            (few, sooner), *_, (many, later) = sorted(one.own)
            slope = (later - sooner) / (many - few)
            each.append(probes.cores * slope / 2)
            starts.append(probes.cores * (sooner - few * slope) / one.ranks)
    if not each or both <= 0:
        return 1.0, 0.0
    return min(1.0, max(0.0, median(each) / both)), max(0.0, median(starts) - _start(probes, 0.0, None))


def _at(points: SizeTimes, nbytes: int) -> float:
    """Return the seconds at this size."""
    return dict(points)[nbytes]


def _left_behind(probes: PairProbes, rate: float) -> float:
    """Return the mean bytes still in flight when a large send returns."""
    arrived = dict(probes.arrived)
    found = [(arrived[nbytes] - done) * rate for nbytes, done in probes.send_done if nbytes >= LARGE]
    return max(0.0, sum(found) / len(found))
