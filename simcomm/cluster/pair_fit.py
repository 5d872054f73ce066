"""The terms of TCP as a pair of hosts shows them, and never the collective that they predict.

Each number comes from one kind of probe: overheads and processor time from the smallest messages, which a link's burst
lets through, the send buffer from when large sends return, the window from what TCP says is under way. What Linux hands
to a link in one piece is known: what is left of a message then waits behind what others have handed over meanwhile
("TCP small queues", Documentation/networking/ip-sysctl.rst, tcp_limit_output_bytes). The goodput is not fitted:
headers and the link's bandwidth give it, and where what was measured is further from it than ``TOLERANCE``, something
else limits the pair and nothing is predicted from it.
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
    """Return the costs of this machine's software for other machines that run it, with the terms of TCP ``given``."""
    if calibration.pair is not None:
        fitted = fit_pair(calibration.pair, ranks).with_terms(given)
        return replace(fitted, source=f"calibrated {calibration.created}")
    return calibration.transport(1.0).with_terms(given) if given else calibration.transport(TCP_GOODPUT)


def fit_pair(probes: PairProbes, ranks: int | None = None) -> Transport:
    """Return the transport of a pair of hosts for so many ranks in all, or for more than there are cores.

    One of the smallest messages in a chain takes the overhead, being posted, and a core at its arrival and for its rank
    to go on; a chain of one takes ``start`` and a notice more; a step in which both sides send takes
    ``exchange_overhead`` more. What a send leaves behind when it returns is what arrives later than that.

    Raises InputError where the pair's goodput is not what its links should give, and for probes that lack a part.
    """
    _check_numbers(probes)
    _check_parts(probes)
    return _fit(probes, ranks)


def _check_numbers(probes: PairProbes) -> None:
    """Raise InputError for a number that nobody measures."""
    left: list[object] = [*asdict(probes).items()]
    while left:
        one = left.pop()
        if isinstance(one, dict | list | tuple):
            left += one.items() if isinstance(one, dict) else one
        elif isinstance(one, int | float) and not abs(one) <= MOST_SECONDS:
            raise InputError(f"the probes of the pair of hosts have {quote(one)}; calibrate again")


def _check_parts(probes: PairProbes) -> None:
    """Raise InputError for probes that lack what the fit divides by or looks up."""
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
    notice = min(overhead, max(0.0, first - hop - arrival))
    slower = probes.software
    own_share, own_start = _own(probes, post + arrival + wake / 2)
    terms = TcpTerms(
        start=slower * _start(probes, first - hop - arrival - notice, ranks),
        notice_overhead=slower * notice,
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
    """Return the messages of 1 MiB and more, by size, with the seconds after which they had arrived."""
    return sorted(point for point in probes.arrived if point[0] >= 1 << 20)


def _chain(probes: PairProbes, small: int) -> tuple[float, float]:
    """Return the seconds of a hop of ``small`` bytes that follows another, and of a chain of one.

    Of several estimates of the hop the middle one counts.
    """
    seconds = sorted((hops, found) for nbytes, hops, found in probes.chains if nbytes == small)
    further = [
        (later - sooner) / (many - few)
        for place, (few, sooner) in enumerate(seconds)
        for many, later in seconds[place + 1 :]
    ]
    return max(0.0, median(further)), seconds[0][1]


def _crowds(probes: PairProbes) -> list[CrowdRound]:
    """Return the rounds of crowds, which are more ranks than cores."""
    return [one for one in probes.crowds if one.ranks > probes.cores > 0]


def _processor(probes: PairProbes, hop: float) -> tuple[float, float, float]:
    """Return the seconds of a core for posting a message, for its arrival, and for going on after a wait.

    Each rank of a crowd, which keeps all cores busy, sends and receives. A message is posted by both sides and arrives,
    as does its notice; once a step a rank waits. So a further message in a step is posting and arriving, twice, and a
    step of one message, which cannot take less, that and going on. Posting is what the sender's thread takes for one
    more in a step. None of it was measured where there is no crowd, and together they are no more than a hop.
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
    """Return the seconds of a core before a rank's first message, of so many ranks.

    Of no more ranks than cores, which wait for their start awake, it is ``awake``. Others sleep until then: all of them
    wake at once and take turns on the cores, each for as long, however many they are.
    """
    awake = max(0.0, awake)
    asleep = [probes.cores * one.waking / one.ranks for one in _crowds(probes)]
    if not asleep or (ranks is not None and ranks <= probes.cores):
        return awake
    return max(awake, median(asleep))


def _own(probes: PairProbes, both: float) -> tuple[float, float]:
    """Return what a message costs in gloo's own collectives, over ``both``, and the seconds that they start later.

    A barrier and an all_gather of so many messages, each with its notice, keep all cores busy; what starts them is the
    same. They post in C++, which takes no more than posting in Python, but from a thread of gloo's, which the rank's
    wakes and waits for. It is (1, 0) where that was not measured.
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
    """Return the bytes that are still to come when a large send returns, the mean over sizes."""
    arrived = dict(probes.arrived)
    found = [(arrived[nbytes] - done) * rate for nbytes, done in probes.send_done if nbytes >= LARGE]
    return max(0.0, sum(found) / len(found))
