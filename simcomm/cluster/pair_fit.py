"""Fit the TCP parameters of a pair of hosts to probes: small measurements that do not include collectives.

Each parameter comes from one kind of probe. The smallest messages, which fit into a link's burst, give the overheads
and CPU times. The time at which large sends return gives the send buffer, and TCP's data in flight gives the window.
Linux passes messages to a link in pieces of a known size, so the rest of a message waits behind pieces of other
messages ("TCP small queues", Documentation/networking/ip-sysctl.rst, tcp_limit_output_bytes). The goodput is computed
from headers and bandwidth. If the measured goodput differs by more than ``TOLERANCE``, another bottleneck must exist,
and InputError is raised.
"""

from dataclasses import asdict, replace
from math import ceil, inf
from statistics import median

from collectives.checks import MOST_SECONDS
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.calibration import Calibration, CrowdRound, PairProbes
from collectives.transport import TcpTerms, Transport

LARGE = 4 << 20  # bytes; larger sends wait for the send buffer
TOLERANCE = 0.01  # relative to the specified goodput
HEADER = 66.0  # bytes per packet: 14 of Ethernet, 20 of IPv4 (RFC 791), 32 of TCP with timestamps (RFC 9293, RFC 7323)
INSIDE_MTU = 52.0  # the part of HEADER inside the MTU
# Payload of a TCP segment over its size on an Ethernet link, with MTU 1500. In addition to ``HEADER``, Ethernet has
# 4 bytes of checksum, 8 of preamble and 12 of gap (IEEE 802.3).
TCP_GOODPUT = (1500 - INSIDE_MTU) / (1500 + 14 + 4 + 8 + 12)
PIECE = 65536 - 320  # bytes that Linux passes to a link at once: GSO_LEGACY_MAX_SIZE less MAX_TCP_HEADER


def borrow_transport(calibration: Calibration, ranks: int) -> Transport:
    """Return a transport for ``ranks`` ranks, with the software costs that were calibrated on this machine."""
    if calibration.pair is None:
        return calibration.transport(TCP_GOODPUT)
    return replace(fit_pair(calibration.pair, ranks), source=f"calibrated {calibration.created}")


def fit_pair(probes: PairProbes, ranks: int | None = None) -> Transport:
    """Return the transport between two hosts, fitted to probes.

    ``ranks`` is the number of ranks that will use it. None means more ranks than cores. Raise InputError if the
    measured goodput does not match the links, or if probes are incomplete.
    """
    _check_numbers(probes)
    try:
        return _fit(probes, ranks)
    except InputError:
        raise
    except (LookupError, ValueError, ZeroDivisionError) as error:
        raise InputError("the measurements between two hosts are incomplete; calibrate again") from error


def _check_numbers(probes: PairProbes) -> None:
    pending: list[object] = [*asdict(probes).items()]
    while pending:
        entry = pending.pop()
        if isinstance(entry, dict | list | tuple):
            pending += entry.items() if isinstance(entry, dict) else entry
        elif isinstance(entry, int | float) and not abs(entry) <= MOST_SECONDS:
            raise InputError(f"invalid number {quote(entry)} in the measurements between two hosts; calibrate again")


def _fit(probes: PairProbes, ranks: int | None) -> Transport:
    payload = probes.mtu - INSIDE_MTU
    rate = probes.bandwidth * payload / (payload + HEADER)
    _check_goodput(probes, rate)
    small = min(nbytes for nbytes, _, _ in probes.chains)
    hop, first = _chain(probes, small)
    on_wire = small + ceil(small / payload) * HEADER
    hop = max(0.0, hop - max(0.0, on_wire - probes.burst) / probes.bandwidth)
    post, arrival, wake = _processor(probes, hop)
    overhead = max(0.0, hop - post - arrival - wake)  # their sum may equal a hop within rounding
    notification = min(overhead, max(0.0, first - hop - arrival))
    slower = probes.software
    own_share, own_start = _own(probes, post + arrival + wake / 2)
    terms = TcpTerms(
        start=slower * _start(probes, first - hop - arrival - notification, ranks),
        receive_ready_overhead=slower * notification,
        exchange_overhead=slower * max(0.0, dict(probes.exchange)[small] - hop - post - arrival),
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
    (small, sooner), *_, (large, later) = sorted(point for point in probes.arrived if point[0] >= 1 << 20)
    goodput = (large - small) / (later - sooner)
    if abs(goodput / rate - 1) > TOLERANCE:
        raise InputError(
            f"two emulated hosts exchanged {goodput / 1e6:.4g} MB/s over a link of "
            f"{probes.bandwidth * 8 / 1e6:.4g} Mbit/s, which should carry {rate / 1e6:.4g} MB/s; calibrate again "
            "while the machine is idle, or reduce the bandwidth"
        )


def _chain(probes: PairProbes, small: int) -> tuple[float, float]:
    """Return the seconds that another hop adds to a chain of ``small``-byte messages, and the seconds of one hop."""
    seconds = sorted((hops, duration) for nbytes, hops, duration in probes.chains if nbytes == small)
    further = [
        (later - sooner) / (many - few)
        for place, (few, sooner) in enumerate(seconds)
        for many, later in seconds[place + 1 :]
    ]
    return max(0.0, median(further)), seconds[0][1]


def _crowds(probes: PairProbes) -> list[CrowdRound]:
    return [crowd for crowd in probes.crowds if crowd.ranks > probes.cores > 0]


def _processor(probes: PairProbes, hop: float) -> tuple[float, float, float]:
    """Return the CPU seconds to post a message, to receive it, and to continue after a wait; zeros if not measured.

    The times come from rounds with more ranks than cores, which keep all cores busy. Each further message of a step
    costs two posts and two receives, because its receive-ready notification is a message too. The first message of a
    step also costs one continuation, because a rank waits once per step. The sum of the three times is at most ``hop``.
    """
    crowds = _crowds(probes)
    if not crowds:
        return 0.0, 0.0, 0.0
    step = median(probes.cores * crowd.step / crowd.ranks for crowd in crowds)
    further = median(probes.cores * crowd.further / crowd.ranks for crowd in crowds)
    both = min(max(0.0, min(further, step) / 2), hop)
    wake = min(max(0.0, step - 2 * both), hop - both)
    (few, sooner), *_, (many, later) = sorted(probes.at_once)
    post = min(max(0.0, (later - sooner) / (many - few)), both)
    return post, both - post, wake


def _start(probes: PairProbes, awake: float, ranks: int | None) -> float:
    """Return the CPU seconds that each of ``ranks`` ranks needs before its first message.

    With at most one rank per core, ranks busy-wait, which costs ``awake`` seconds. With more ranks, or if ``ranks`` is
    None, they sleep, wake at the same time, and share the cores equally.
    """
    awake = max(0.0, awake)
    asleep = [probes.cores * crowd.waking / crowd.ranks for crowd in _crowds(probes)]
    if not asleep or (ranks is not None and ranks <= probes.cores):
        return awake
    return max(awake, median(asleep))


def _own(probes: PairProbes, both: float) -> tuple[float, float]:
    """Return two costs of gloo's built-in collectives: the CPU time of a message, and that to start a collective.

    The first is a fraction of ``both``, the CPU time of a message sent from Python. The second is in seconds, in
    addition to the start of a single message. Without measurements, return (1, 0).
    """
    each, starts = [], []
    for crowd in _crowds(probes):
        if len(crowd.own) > 1:
            (few, sooner), *_, (many, later) = sorted(crowd.own)
            slope = (later - sooner) / (many - few)
            each.append(probes.cores * slope / 2)
            starts.append(probes.cores * (sooner - few * slope) / crowd.ranks)
    if not each or both <= 0:
        return 1.0, 0.0
    return min(1.0, max(0.0, median(each) / both)), max(0.0, median(starts) - _start(probes, 0.0, None))


def _left_behind(probes: PairProbes, rate: float) -> float:
    arrived = dict(probes.arrived)
    in_flight = [(arrived[nbytes] - done) * rate for nbytes, done in probes.send_done if nbytes >= LARGE]
    return max(0.0, sum(in_flight) / len(in_flight))
